package program

import (
	"cmp"
	"context"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

var printOp = &operator{
	ins: arity{1, many},
	attributes: []attribute{
		{name: "message", value: textValue("")},
		{name: "summarize", value: intValue(20)},
		{name: "first_n", value: intValue(0)},
	},
	category: trace.Compute,
	check: func(c *checking) error {
		if _, err := limited(c.op, "summarize", 0); err != nil {
			return err
		}
		_, err := limited(c.op, "first_n", 0)
		return err
	},
	prepare: func(op *desc.Op) (any, error) {
		return &printing{valueOf(op, "message").Text, int(min(valueOf(op, "summarize").Int, 1<<20)), valueOf(op, "first_n").Int}, nil
	},
	step: stepPrint,
}

type printing struct {
	message   string
	summarize int
	first     int64
}

// stepPrint writes the lines of all inputs in one piece, so that the output of several threads does not mix.
func stepPrint(r *Run, in *instruction, _ context.Context) error {
	p := in.data.(*printing)
	done := &r.counts[in.state]
	if *done++; p.first > 0 && *done > p.first {
		return nil
	}
	text := r.text[:0]
	for i, variable := range in.in {
		if p.message != "" {
			text = append(append(text, p.message...), ' ')
		}
		text = append(append(text, in.op.Inputs[i]...), ' ')
		err := r.vars[variable].ReadTensor(func(t *pyfeed.LoDTensor) error {
			text = appendTensor(text, t, p.summarize)
			return nil
		})
		if err != nil {
			return err
		}
		text = append(text, '\n')
	}
	r.text = text
	if err := writeError(text); err != nil {
		e := pyfeed.Errorf(pyfeed.IO, "standard error: %v", err)
		e.Cause = err
		return e
	}
	return nil
}

// writeError writes to standard error. It does not use os.File.Write, which raises SIGPIPE for a pipe without readers
// even if the host program ignores that signal.
func writeError(text []byte) error {
	file, err := os.Stderr.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = file.Write(func(fd uintptr) bool {
		for len(text) > 0 && failed == nil {
			n, err := unix.Write(int(fd), text)
			switch err {
			case nil:
				text = text[n:]
			case unix.EINTR:
			// The host made stderr non-blocking; wait at most a second, because this wait cannot be cancelled.
			case unix.EAGAIN:
				if n, bad := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000); n == 0 && bad == nil {
					failed = err
				}
			default:
				failed = err
			}
		}
		return true
	})
	return cmp.Or(failed, err)
}

// appendTensor writes dtype, dims, LoD and the first elements of a tensor.
func appendTensor(text []byte, t *pyfeed.LoDTensor, limit int) []byte {
	text = append(append(text, t.DType.String()...), ' ')
	text = append(text, dimsText(t.Dims())...)
	for _, level := range t.LoD {
		text = append(text, " lod "...)
		for i, offset := range level {
			if i > limit {
				text = append(text, ", ..."...)
				break
			}
			if i > 0 {
				text = append(text, ',')
			}
			text = strconv.AppendInt(text, offset, 10)
		}
	}
	if t.OnDevice() {
		return append(append(text, " at "...), t.Place.String()...)
	}
	text = append(text, ": ["...)
	size := t.DType.Size()
	n := len(t.Data) / size
	for i := range min(n, limit) {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = appendNumber(text, t.DType, load(t.DType, t.Data[i*size:]))
	}
	if n > limit {
		if limit > 0 {
			text = append(text, ", "...)
		}
		text = append(text, "..."...)
	}
	return append(text, ']')
}

func appendNumber(text []byte, d pyfeed.DType, n number) []byte {
	bits := 64
	if d.Size() <= 4 || d == pyfeed.Complex64 {
		bits = 32
	}
	switch n.kind {
	case unsigned:
		if d == pyfeed.Bool {
			return strconv.AppendBool(text, n.u != 0)
		}
		return strconv.AppendUint(text, n.u, 10)
	case signed:
		return strconv.AppendInt(text, n.i, 10)
	case floating:
		return strconv.AppendFloat(text, n.f, 'g', -1, bits)
	}
	text = strconv.AppendFloat(append(text, '('), n.f, 'g', -1, bits)
	if !math.Signbit(n.g) && !math.IsInf(n.g, 1) { // otherwise the sign is written with the number
		text = append(text, '+')
	}
	return append(strconv.AppendFloat(text, n.g, 'g', -1, bits), "i)"...)
}
