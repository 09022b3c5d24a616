//go:build !cgo

package memory

// Without cgo, the build fails here: the compiler prints this name, beside errors about types that the C code defines.
const _ = pyfeed_needs_cgo__set_CGO_ENABLED_to_1_and_install_a_C_compiler
