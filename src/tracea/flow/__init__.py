"""The flow: the steps from meaning to a verified, measured program, as plain calls. The only place that composes packages.

``core.Graph → doctor.Plan → optimizer.Trial → semantic.TileKernel → emitters.KernelSource → runtime.Program → profiler.Measurement →
gates.Verdict``
"""
