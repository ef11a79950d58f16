"""What a program means: element types, tensor types, ops, scalar expressions, graphs, passes and a float64 reference.

Import from the modules: ``tracea.core.dtype``, ``tensor_type``, ``expr``, ``op``, ``graph``, ``reference``, ``passes``.
"""
