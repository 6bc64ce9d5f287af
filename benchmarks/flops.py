"""Floating-point operations of a program, counted in the program itself."""


def dot_flops(jaxpr) -> int:
    """Additions and multiplications of all matrix products in a program, loops taken once."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = 1
            for axis in contracted:
                inner *= equation.invars[0].aval.shape[axis]
            total += 2 * inner * equation.outvars[0].aval.size
        for value in equation.params.values():
            for inside in value if isinstance(value, tuple | list) else (value,):
                inside = getattr(inside, "jaxpr", inside)
                if hasattr(inside, "eqns"):
                    total += dot_flops(inside)
    return total
