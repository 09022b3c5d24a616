#include "textflag.h"

// COPY64 copies the 64 bytes at an offset.
#define COPY64(at) \
	MOVOU (SI)(at*1), X0; \
	MOVOU 16(SI)(at*1), X1; \
	MOVOU 32(SI)(at*1), X2; \
	MOVOU 48(SI)(at*1), X3; \
	MOVOU X0, (DI)(at*1); \
	MOVOU X1, 16(DI)(at*1); \
	MOVOU X2, 32(DI)(at*1); \
	MOVOU X3, 48(DI)(at*1)

// func copyLines(to, from unsafe.Pointer, n int, next unsafe.Pointer)
TEXT ·copyLines(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ from+8(FP), SI
	MOVQ n+16(FP), R8
	MOVQ next+24(FP), DX
	SUBQ $64, R8           // offset of the last 64 bytes
	XORQ AX, AX

line:
	PREFETCHT0 (DX)(AX*1)
	COPY64(AX)
	ADDQ $64, AX
	CMPQ AX, R8
	JLE line

	// The last 64 bytes, some of which may have been copied already.
	PREFETCHT0 63(DX)(R8*1)
	COPY64(R8)
	RET
