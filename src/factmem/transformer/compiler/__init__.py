"""The compiler: from a table of facts to certified weights."""
