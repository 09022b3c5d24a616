#include "textflag.h"

// func copyLines(to, from unsafe.Pointer, n int, next unsafe.Pointer)
TEXT ·copyLines(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ next+24(FP), DX
	MOVQ CX, R8
	SUBQ $64, R8           // offset of the last 64 bytes
	XORQ AX, AX

line:
	PREFETCHT0 (DX)(AX*1)
	MOVOU (SI)(AX*1), X0
	MOVOU 16(SI)(AX*1), X1
	MOVOU 32(SI)(AX*1), X2
	MOVOU 48(SI)(AX*1), X3
	MOVOU X0, (DI)(AX*1)
	MOVOU X1, 16(DI)(AX*1)
	MOVOU X2, 32(DI)(AX*1)
	MOVOU X3, 48(DI)(AX*1)
	ADDQ $64, AX
	CMPQ AX, R8
	JLE line

	// The last 64 bytes, some of which may have been copied already.
	PREFETCHT0 63(DX)(R8*1)
	MOVOU (SI)(R8*1), X0
	MOVOU 16(SI)(R8*1), X1
	MOVOU 32(SI)(R8*1), X2
	MOVOU 48(SI)(R8*1), X3
	MOVOU X0, (DI)(R8*1)
	MOVOU X1, 16(DI)(R8*1)
	MOVOU X2, 32(DI)(R8*1)
	MOVOU X3, 48(DI)(R8*1)
	RET
