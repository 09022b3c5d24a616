#include "textflag.h"

DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $16
DATA backslashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL backslashes<>(SB), RODATA|NOPTR, $16
DATA blanks<>+0(SB)/8, $0x2020202020202020
DATA blanks<>+8(SB)/8, $0x2020202020202020
GLOBL blanks<>(SB), RODATA|NOPTR, $16

// SIXTEEN sets a register to the bits of 16 bytes. A signed comparison with a blank finds control characters, and bytes
// beyond ASCII, which are negative.
#define SIXTEEN(offset, bits) \
	MOVOU offset(SI), X0; \
	MOVO X8, X1; \
	PCMPEQB X0, X1; \
	MOVO X9, X2; \
	PCMPEQB X0, X2; \
	MOVO X10, X3; \
	PCMPGTB X0, X3; \
	POR X2, X1; \
	POR X3, X1; \
	PMOVMSKB X1, bits

// func specials(p unsafe.Pointer) uint64
TEXT ·specials(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVOU quotes<>(SB), X8
	MOVOU backslashes<>(SB), X9
	MOVOU blanks<>(SB), X10
	SIXTEEN(0, AX)
	SIXTEEN(16, BX)
	SIXTEEN(32, CX)
	SIXTEEN(48, DX)
	SHLQ $16, BX
	SHLQ $32, CX
	SHLQ $48, DX
	ORQ BX, AX
	ORQ DX, CX
	ORQ CX, AX
	MOVQ AX, ret+8(FP)
	RET
