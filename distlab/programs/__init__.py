"""Compiled programs, read from XLA's text: what they move, along which mesh axes, and for what.

`contents.read_program(compiled)` is the one reader: of any `jax.stages.Compiled` it returns the
fields that a `Compile` event has of a program (`collectives`, `mesh`, `inputs`, `outputs`, costs
and memory), in some milliseconds and without running anything; `Compile(...,
**read_program(compiled)._asdict())` passes them on. `events.Collective` has the axes, purpose and
line of a collective, `events.ArrayPlace` an array's spec and bytes. Devices are positions in the
mesh and are never listed.

Modules, each above those before it: `hlo_text` (the grammar), `mesh_axes` (replica groups to axes),
`flow` (the ways of values), `places` (inputs and outputs), `collectives`, `contents`.
"""
