# SPDX-License-Identifier: Apache-2.0
"""`lockstep matrix` and `lockstep bisect` (docs/matrix.md): what releases of packages do to gradients. Nothing here imports torch."""
