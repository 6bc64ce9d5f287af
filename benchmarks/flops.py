"""Floating-point operations of a program, counted in its jaxpr."""


def dot_flops(jaxpr) -> int:
    """Count additions and multiplications of all matrix products; a loop body counts once."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = 1
            for axis in contracted:
                inner *= equation.invars[0].aval.shape[axis]
            total += 2 * inner * equation.outvars[0].aval.size
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                part = getattr(part, "jaxpr", part)
                if hasattr(part, "eqns"):
                    total += dot_flops(part)
    return total
