// Package state has the saved position of a chain of readers, and its form as JSON.
//
// A state is a JSON object without spaces, whose members come in the order of their names:
//
//	check    CRC-32C (Castagnoli) of the object without this member
//	ended    whether the end of the pass was delivered; absent if not
//	n        tuples of the pass that the topmost reader has delivered
//	pass     the number of its pass
//	readers  the readers of the chain, from the top down, depth first: for each its kind, the options that decide which
//	         tuples come in which order, and where it can go on, which only the reader itself understands
//	v        the version of this form
package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Version is the version of states that this package writes. It reads this version and all earlier ones.
const Version = 1

// MaxSize is the largest size in bytes of a state that Decode accepts.
const MaxSize = 16 << 20

// A State is the position of a chain.
type State struct {
	Pass    uint64
	N       int64
	Ended   bool
	Readers []Reader
}

// Reader is the part of one reader in a State.
type Reader struct {
	Kind    string
	Options []Option        // in the order of their names
	At      json.RawMessage // where the reader can go on; nil: what is above says it all
}

// Option is an option of a reader.
type Option struct {
	Name  string
	Value any // nil, bool, int, int64, uint64, string or Hash
	// Optional says that a reader with another value can still go on at the same number of tuples, if the caller
	// accepts other tuples.
	Optional bool
}

// A Hash stands for something that is too long for a state.
type Hash string

// HashOf returns the hash of texts.
func HashOf(texts ...string) Hash {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = h.Write([]byte(t))
		_, _ = h.Write([]byte{0})
	}
	return Hash(strconv.FormatUint(h.Sum64(), 16))
}

// longestText is the size in bytes of the longest text that states have in full.
const longestText = 64

// Text returns the value of an option: the text, or its Hash if it is long.
func Text(text string) any {
	if len(text) <= longestText {
		return text
	}
	return HashOf(text)
}

// Encode returns the state as JSON.
func (s *State) Encode() []byte {
	const head = `{"check":4294967295,` // the longest one
	b := make([]byte, len(head), 2048)
	if s.Ended {
		b = append(b, `"ended":true,`...)
	}
	b = append(b, `"n":`...)
	b = strconv.AppendInt(b, s.N, 10)
	b = append(b, `,"pass":`...)
	b = strconv.AppendUint(b, s.Pass, 10)
	b = append(b, `,"readers":[`...)
	for i := range s.Readers {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.Readers[i].append(b)
	}
	b = append(b, `],"v":`...)
	b = strconv.AppendInt(b, Version, 10)
	b = append(b, '}')
	checked := b[len(head)-1:]
	checked[0] = '{'
	var room [len(head)]byte
	check := strconv.AppendUint(append(room[:0], `{"check":`...), uint64(crc32.Checksum(checked, castagnoli)), 10)
	checked[0] = ','
	b = b[len(head)-1-len(check):]
	copy(b, check)
	return b
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *Reader) append(b []byte) []byte {
	b = append(b, '{')
	if r.At != nil {
		b = append(b, `"at":`...)
		b = append(b, r.At...)
		b = append(b, ',')
	}
	b = append(b, `"kind":`...)
	b = AppendText(b, r.Kind)
	separator := `,"options":{`
	for i := range r.Options {
		o := &r.Options[i]
		if o.isZero() {
			continue
		}
		b = append(b, separator...)
		b = AppendText(b, o.Name)
		b = append(b, ':')
		b = o.appendValue(b)
		separator = ","
	}
	if separator == "," {
		b = append(b, '}')
	}
	return append(b, '}')
}

// isZero reports whether a state leaves the option out.
func (o *Option) isZero() bool {
	return o.Value == nil || o.Value == false || o.Value == 0 || o.Value == ""
}

func (o *Option) appendValue(b []byte) []byte {
	switch v := o.Value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case json.Number: // of a state that was decoded
		return append(b, v...)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case string:
		return AppendText(b, v)
	case Hash:
		return AppendText(b, string(v))
	}
	panic(fmt.Sprintf("state: option %s: no JSON for %T", o.Name, o.Value))
}

// AppendText appends a string as JSON, in the form that Encode uses.
func AppendText(b []byte, text string) []byte {
	plain := true
	for i := range len(text) {
		plain = plain && text[i] >= ' ' && text[i] <= '~' && text[i] != '"' && text[i] != '\\'
	}
	if plain {
		b = append(b, '"')
		b = append(b, text...)
		return append(b, '"')
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // cannot fail for a string
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// Decode reads a state. Data that Encode has not written, of this or an earlier version, is an error of kind Invalid. JSON
// may have gained spaces and another order of members on its way.
func Decode(data []byte) (*State, error) {
	if len(data) > MaxSize {
		return nil, invalid("at most %d bytes, found %d", MaxSize, len(data))
	}
	all, err := members(data)
	if err != nil {
		return nil, err
	}
	version, is := all["v"].(json.Number)
	if v, err := strconv.ParseInt(string(version), 10, 64); !is || err != nil || v < 1 {
		return nil, invalid("a state of a reader, found JSON without a version \"v\"")
	} else if v > Version {
		return nil, invalid("version %d at most, found version %d: a later release has written it", Version, v)
	}
	check, is := all["check"].(json.Number)
	delete(all, "check")
	if !is || string(check) != strconv.FormatUint(uint64(crc32.Checksum(canonical(all), castagnoli)), 10) {
		return nil, invalid("the state that was saved, found a changed one: the checksum is wrong")
	}
	var parsed struct {
		Check   uint32
		Ended   bool
		N       int64
		Pass    uint64
		Readers []struct {
			At      json.RawMessage
			Kind    string
			Options map[string]any
		}
		V int
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(&parsed); err != nil {
		return nil, invalid("a state, found other JSON: %v", err)
	}
	if parsed.N < 0 || len(parsed.Readers) == 0 {
		return nil, invalid("n from 0 on, and readers; found n %d and %d readers", parsed.N, len(parsed.Readers))
	}
	s := &State{Pass: parsed.Pass, N: parsed.N, Ended: parsed.Ended}
	for _, r := range parsed.Readers {
		reader := Reader{Kind: r.Kind, At: r.At}
		for name, value := range r.Options {
			reader.Options = append(reader.Options, Option{Name: name, Value: value})
		}
		s.Readers = append(s.Readers, reader)
	}
	return s, nil
}

// members decodes a JSON object and nothing behind it.
func members(data []byte) (all map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&all); err != nil || all == nil {
		return nil, invalid("a state as a JSON object, found %s", excerpt(data))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid("a JSON object, found more behind it")
	}
	return all, nil
}

// canonical returns JSON without spaces, with members in the order of their names.
func canonical(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // cannot fail for what was decoded
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func excerpt(data []byte) string {
	const most = 40
	if len(data) > most {
		return fmt.Sprintf("%q...", data[:most])
	}
	return fmt.Sprintf("%q", data)
}

func invalid(expected string, args ...any) error {
	return pyfeed.Errorf(pyfeed.Invalid, "state: expected "+expected, args...)
}

// CheckKind returns an error of kind State if the reader in the state is of another kind.
func (r *Reader) CheckKind(kind string) error {
	if r.Kind != kind {
		return pyfeed.Errorf(pyfeed.State, "the state is of another chain: expected a reader %s in its place, found %s", r.Kind, kind)
	}
	return nil
}

// Compare returns an error of kind State if a reader of the same kind, with the given options, does not deliver what the
// reader in the state did. It names the difference, preferably one whose value is not a Hash. If strict is false, options
// may differ that are Optional.
func (r *Reader) Compare(options []Option, strict bool) error {
	saved := make(map[string]string, len(r.Options))
	for _, o := range r.Options {
		saved[o.Name] = string(canonical(o.Value))
	}
	var hashed error
	for _, o := range options {
		found := "none"
		if !o.isZero() {
			found = string(o.appendValue(nil))
		}
		expected, there := saved[o.Name]
		delete(saved, o.Name)
		if !there { // or the release that wrote the state did not have the option
			expected = "none"
		}
		if expected == found || !strict && o.Optional {
			continue
		}
		err := pyfeed.Errorf(pyfeed.State, "the state is of another chain: %s: %s: expected %s, as when it was saved, found %s", r.Kind, o.Name, expected, found)
		if _, is := o.Value.(Hash); !is {
			return err
		}
		err.Text += ", which are hashes"
		hashed = cmp.Or(hashed, error(err))
	}
	if hashed != nil {
		return hashed
	}
	for name, value := range saved {
		return pyfeed.Errorf(pyfeed.State, "the state is of another chain: %s: %s: expected %s, as when it was saved, found no such option", r.Kind, name, value)
	}
	return nil
}
