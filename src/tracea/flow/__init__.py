"""The flow: the steps from meaning to a verified, measured program, as plain calls. Only here packages are composed.

``core.Graph → doctor.Plan → optimizer.Trial → semantic.TileKernel → emitters.KernelSource → runtime.Program →
profiler.Measurement → gates.Verdict``
"""
