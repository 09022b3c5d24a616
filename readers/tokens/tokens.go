// Package tokens reads and writes files of token ids, the input of a language model. An instance is a window of
// consecutive tokens. The windows of a file may overlap, and are views of the file where no conversion is needed.
//
// Three layouts are known. All numbers are little-endian.
//   - headerless: the tokens, and nothing else, as numpy.ndarray.tofile writes them for nanoGPT
//   - llm.c: a header of 256 int32, which begins with a magic number, a version and the number of tokens
//   - Megatron-LM: the tokens in a file .bin, and an index in a file .idx. See [megatron]
//
// No suffix tells the format: .bin is that of raw files, and .idx that of MNIST's.
package tokens

import (
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// Length is the number of tokens of a window. 0: for reading, it has to be given, unless Documents is "whole".
	Length int64 `json:"length"`
	// Stride is the number of tokens from the beginning of one window to that of the next. 0: Length.
	Stride int64 `json:"stride"`
	// Targets adds a second slot: the tokens that follow those of the first slot, one each.
	Targets bool `json:"targets"`
	// Documents says what windows are made of. "across" or "": all tokens of the file. "within": the tokens of one
	// document each. "whole": a window is a document, of any length.
	Documents string `json:"documents"`
	// Last says what happens to tokens that are fewer than a window, at the end of the file or document. "drop" or "":
	// they are left out. "short": they become a shorter window, and the slots have ragged offsets (LoD).
	Last string `json:"last"`
	// DType of the tokens in the file. "": uint16 for files without a header; for other files, as the header says.
	DType string `json:"dtype"`
	// OutputDType is the dtype of the slots, an integer dtype that holds all values of DType. "": DType.
	OutputDType string `json:"output_dtype"`
	// Layout is "headerless", "llm.c" or "megatron". "" or "auto": megatron if the name ends in .idx; llm.c if the file
	// begins with its magic number; else headerless.
	Layout string `json:"layout"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "": for writing, that of the file's suffix (.gz,
	// .zlib, .zst, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

func init() {
	record.MustRegister(record.Format{
		Tag:      "tokens",
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
		Defaults: map[string]any{"targets": false, "documents": "across", "last": "drop", "layout": "auto"},
	})
}

// maxTokens limits the length and the stride of windows, so that sums and products of few of them do not overflow.
const maxTokens = 1 << 40

// Check implements record.OptionsChecker.
func (o *Options) Check() error {
	for _, c := range []struct {
		name, value string
		allowed     []string
	}{
		{"documents", o.Documents, []string{"across", "within", "whole"}},
		{"last", o.Last, []string{"drop", "short"}},
		{"layout", o.Layout, []string{"auto", "headerless", "llm.c", "megatron"}},
	} {
		if c.value != "" && !slices.Contains(c.allowed, c.value) {
			last := len(c.allowed) - 1
			return pyfeed.Errorf(pyfeed.Invalid, "tokens: %s: expected %s or %s, found %q", c.name, strings.Join(c.allowed[:last], ", "), c.allowed[last], c.value)
		}
	}
	for _, c := range []struct{ name, value string }{{"dtype", o.DType}, {"output_dtype", o.OutputDType}} {
		if d, known := pyfeed.DTypeOf(c.value); c.value != "" && !(known && isToken(d)) {
			return pyfeed.Errorf(pyfeed.Type, "tokens: %s: expected an integer dtype, found %q", c.name, c.value)
		}
	}
	switch {
	case o.Length < 0 || o.Length > maxTokens:
		return pyfeed.Errorf(pyfeed.Invalid, "tokens: length: expected 1 to %d tokens, found %d", maxTokens, o.Length)
	case o.Stride < 0 || o.Stride > maxTokens:
		return pyfeed.Errorf(pyfeed.Invalid, "tokens: stride: expected 1 to %d tokens, found %d", maxTokens, o.Stride)
	case o.Documents == "whole" && (o.Length > 0 || o.Stride > 0):
		return pyfeed.Errorf(pyfeed.Invalid, "tokens: length: expected none, nor stride, because documents is \"whole\", found %d and %d", o.Length, o.Stride)
	case o.Documents == "whole" && o.Targets:
		return pyfeed.Errorf(pyfeed.Invalid, "tokens: targets: expected false, because documents is \"whole\", found true")
	}
	return nil
}

// isToken reports whether tokens can have that dtype.
func isToken(d pyfeed.DType) bool { return d >= pyfeed.Int8 && d <= pyfeed.Uint64 }

// isSigned reports whether an integer dtype has negative values.
func isSigned(d pyfeed.DType) bool { return d <= pyfeed.Int64 }

// holds reports whether an integer dtype has all values of another.
func holds(wide, d pyfeed.DType) bool {
	switch {
	case isSigned(wide) == isSigned(d):
		return wide.Size() >= d.Size()
	case isSigned(wide):
		return wide.Size() > d.Size()
	}
	return false
}

// dtype returns the dtype of tokens in a file whose header says stored; Any: there is no header.
func (o *Options) dtype(stored pyfeed.DType) (pyfeed.DType, error) {
	given, known := pyfeed.DTypeOf(o.DType)
	switch {
	case !known || given == pyfeed.Any:
		if stored == pyfeed.Any {
			return pyfeed.Uint16, nil
		}
		return stored, nil
	case stored != pyfeed.Any && given != stored:
		return 0, pyfeed.Errorf(pyfeed.Type, "dtype: expected %v, as the file says, found %v: output_dtype converts tokens", stored, given)
	}
	return given, nil
}

// output returns the dtype of the slots.
func (o *Options) output(stored pyfeed.DType) (pyfeed.DType, error) {
	given, known := pyfeed.DTypeOf(o.OutputDType)
	switch {
	case !known || given == pyfeed.Any:
		return stored, nil
	case !holds(given, stored):
		return 0, pyfeed.Errorf(pyfeed.Type, "output_dtype: expected an integer dtype that holds all values of %v, found %v", stored, given)
	}
	return given, nil
}
