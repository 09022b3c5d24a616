package mds

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a shard for writing. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	compression := cmp.Or(o.Compression, c.Storage.Compression)
	for suffix, of := range map[string]string{".zstd": "zstd", ".br": "br", ".bz2": "bz2", ".snappy": "a block of snappy"} {
		switch {
		case !strings.HasSuffix(path, suffix):
		case of != "zstd":
			return nil, pyfeed.Errorf(pyfeed.Unsupported, "mds: compression: expected none, gzip, zlib, zstd or framed snappy (.sz) for writing, found %s", of)
		case compression != "" && compression != of:
			return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected zstd, as the suffix %s of %s says, found %q", suffix, path, compression)
		default:
			compression = of
		}
	}
	if o.UpdateIndex {
		if err := checkIndexed(path, compression); err != nil {
			return nil, err
		}
	}
	w := &writer{path: path, options: o}
	w.Names = c.Names
	w.Encode, w.Finish = w.encode, w.finish
	var err error
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.Slots, func(s pyfeed.Slot) bool { return s.DType == pyfeed.Any }) {
			if err = w.setSlots(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	if w.Sink, err = storage.Create(path, compression); err != nil {
		return nil, err
	}
	if w.samples, err = w.Sink.Spool(); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// compressedSuffixes are the suffixes of compressed shards, with the names that MosaicML's index has for what they say.
// MosaicML's reader knows neither zlib nor framed snappy.
var compressedSuffixes = []struct{ suffix, compression, inIndex string }{{".gz", "gzip", "gz"}, {".zst", "zstd", "zstd"}, {".zstd", "zstd", "zstd"}}

// checkIndexed returns an error if the index cannot describe how a shard is compressed, or if the suffix says otherwise.
func checkIndexed(path, compression string) error {
	if compression == "" || compression == "auto" {
		compression = storage.ByName(path)
	}
	said := "none"
	for _, c := range compressedSuffixes {
		if strings.HasSuffix(path, c.suffix) {
			said = c.compression
		}
	}
	switch {
	case compression == "zlib" || compression == "snappy":
		return pyfeed.Errorf(pyfeed.Unsupported, "mds: update_index: expected a shard compressed by gzip or zstd, or not, because MosaicML's index "+
			"has no other compression that can be written, found %s for %s", compression, path)
	case compression != said:
		return pyfeed.Errorf(pyfeed.Invalid, "mds: update_index: expected the suffix .gz for gzip, .zst or .zstd for zstd, and no such suffix for none, "+
			"found compression %s for %s", compression, path)
	}
	return nil
}

// writer writes a shard. The offsets come first in the file but are known last, so the samples wait in a Spool.
type writer struct {
	record.FileWriter
	path    string
	options *Options
	columns []column
	samples *storage.Spool
	sizes   []uint32 // of the samples
	total   int64    // of the samples, in bytes
	head    []byte   // of the sample being written
}

// setSlots sets the columns of all samples.
func (w *writer) setSlots(slots []pyfeed.Slot) error {
	seen := make(map[string]bool)
	for i, s := range slots {
		name := cmp.Or(s.Name, w.SlotName(i))
		if seen[name] {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "mds: expected slots with different names, found %q again", name)
		}
		seen[name] = true
		if err := record.CheckName(i, "mds", name); err != nil {
			return err
		}
		text, err := w.encodingFor(i, s, name)
		if err != nil {
			return err
		}
		e := encodingOf(text)
		w.columns = append(w.columns, column{name: name, encoding: e, size: e.size()})
	}
	for name := range w.options.Encodings {
		if !seen[name] {
			return pyfeed.Errorf(pyfeed.Invalid, "mds: encodings: expected the names of slots, found %q", name)
		}
	}
	return nil
}

// encodingFor returns the encoding of a slot.
func (w *writer) encodingFor(i int, s pyfeed.Slot, name string) (string, error) {
	bytes := s.DType == pyfeed.Uint8 && s.LoDLevels == 1 && len(s.Dims) == 1
	given := w.options.Encodings[name]
	if e := encodingOf(given); given != "" {
		switch {
		case e.kind == opaque && bytes, e.kind == number && e.dtype == s.DType && len(s.Dims) == 0 && s.LoDLevels == 0,
			e.kind == array && (e.dtype == pyfeed.Any || e.dtype == s.DType) && isNumber(s.DType) && s.LoDLevels <= 1 &&
				(e.dims == nil || slices.Equal(e.dims, s.Dims) && s.LoDLevels == 0) && len(s.Dims) > 0:
			return given, nil
		}
		return "", pyfeed.SlotErrorf(pyfeed.Type, i, "mds: expected an encoding for %v of dims %v, found %.40q", s.DType, shown(s.Dims), given)
	}
	switch {
	case bytes:
		return "bytes", nil
	case !isNumber(s.DType):
		return "", pyfeed.SlotErrorf(pyfeed.Type, i, "mds: dtype: expected an integer dtype, float16, float32 or float64, found %v", s.DType)
	case s.LoDLevels > 1:
		return "", pyfeed.SlotErrorf(pyfeed.Shape, i, "mds: LoD: expected at most 1 level, found %d", s.LoDLevels)
	case len(s.Dims) == 0 && s.LoDLevels == 0:
		return s.DType.String(), nil
	case s.LoDLevels > 0 || slices.Contains(s.Dims, -1):
		return "ndarray:" + s.DType.String(), nil
	}
	var dims []string
	for _, d := range s.Dims {
		if d == 0 {
			return "", pyfeed.SlotErrorf(pyfeed.Shape, i, "mds: expected arrays with elements, found dims %v", shown(s.Dims))
		}
		dims = append(dims, strconv.FormatInt(d, 10))
	}
	return "ndarray:" + s.DType.String() + ":" + strings.Join(dims, ","), nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.columns == nil {
		slots := record.DescribeTuple(t)
		if err := w.setSlots(slots); err != nil {
			return err
		}
		if w.Spec == nil {
			var err error
			if w.Spec, err = pyfeed.NewSpec(slots); err != nil {
				return err
			}
		}
	}
	w.head = w.head[:0]
	size := int64(0)
	var prefixes []byte
	begins := make([]int, 0, len(t.Slots)+1)
	for i := range t.Slots {
		s, c := &t.Slots[i], &w.columns[i]
		begins = append(begins, len(prefixes))
		if c.encoding.kind == array {
			if len(s.Data) == 0 {
				return pyfeed.SlotErrorf(pyfeed.Shape, i, "mds: expected arrays with elements, found dims %v", shown(s.Dims()))
			}
			if c.encoding.dtype == pyfeed.Any {
				prefixes = append(prefixes, codeOf(s.DType))
			}
			if c.encoding.dims == nil {
				prefixes = appendShape(prefixes, s.Dims())
			}
		}
		n := int64(len(prefixes)-begins[i]) + int64(len(s.Data))
		if c.size >= 0 && n != c.size {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "mds: expected %d bytes of data, found %d", c.size, n)
		}
		if n > math.MaxUint32 {
			return pyfeed.SlotErrorf(pyfeed.TooLarge, i, "mds: expected at most %d bytes, found %d", uint32(math.MaxUint32), n)
		}
		if size += n; c.size < 0 {
			w.head = binary.LittleEndian.AppendUint32(w.head, uint32(n))
		}
	}
	begins = append(begins, len(prefixes))
	if size += int64(len(w.head)); w.total+size > math.MaxUint32-maxDescription-8*int64(len(w.sizes)+1) {
		return pyfeed.Errorf(pyfeed.TooLarge, "mds: expected a shard of less than 4 GiB, found more: write several shards")
	}
	if _, err := w.samples.Write(w.head); err != nil {
		return err
	}
	for i := range t.Slots {
		s := &t.Slots[i]
		if _, err := w.samples.Write(prefixes[begins[i]:begins[i+1]]); err != nil {
			return err
		}
		data := s.Data
		if record.BigEndian && s.DType.Size() > 1 {
			data = slices.Clone(data)
			s.DType.Reverse(data)
		}
		if _, err := w.samples.Write(data); err != nil {
			return err
		}
	}
	w.sizes = append(w.sizes, uint32(size))
	w.total += size
	return nil
}

func codeOf(d pyfeed.DType) byte {
	for code, dtype := range arrayTypes {
		if dtype == d {
			return code
		}
	}
	return 0
}

// appendShape appends the number of dimensions, the size of a dimension's number, and the dimensions.
func appendShape(to []byte, dims []int64) []byte {
	item, code := 1, byte(0)
	for most := slices.Max(dims); item < 8 && most>>(8*item) > 0; {
		item, code = 2*item, code+1
	}
	to = append(to, byte(len(dims)<<2)|code)
	for _, d := range dims {
		for b := range item {
			to = append(to, byte(d>>(8*b)))
		}
	}
	return to
}

// describe returns the JSON object of the shard. The encoder sorts the names of members.
func (w *writer) describe() map[string]any {
	names, encodings, sizes := []string{}, []string{}, []any{}
	for _, c := range w.columns {
		names, encodings = append(names, c.name), append(encodings, c.encoding.name)
		if c.size < 0 {
			sizes = append(sizes, nil)
		} else {
			sizes = append(sizes, c.size)
		}
	}
	return map[string]any{"column_names": names, "column_encodings": encodings, "column_sizes": sizes, "compression": nil, "format": "mds",
		"hashes": []string{}, "size_limit": nil, "version": 2}
}

// finish writes the header and the samples.
func (w *writer) finish() error {
	if len(w.columns) == 0 {
		return pyfeed.Errorf(pyfeed.Slots, "mds: slots: expected at least 1, found none: give shapes for a shard without samples")
	}
	text, err := json.Marshal(w.describe())
	if err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "mds: names: %v", err)
	}
	if len(text) > maxDescription {
		return pyfeed.Errorf(pyfeed.TooLarge, "mds: expected a description of at most %d bytes, found %d", maxDescription, len(text))
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(w.sizes)))
	at := uint32(4 + 4*(len(w.sizes)+1) + len(text))
	for _, size := range w.sizes {
		head = binary.LittleEndian.AppendUint32(head, at)
		at += size
	}
	head = append(binary.LittleEndian.AppendUint32(head, at), text...)
	if _, err := w.Sink.Write(head); err != nil {
		return err
	}
	_, err = w.samples.WriteTo(w.Sink)
	return err
}

// Close implements record.Writer. It adds the shard to the index of its folder if that was asked for.
func (w *writer) Close() error {
	err := w.FileWriter.Close()
	if err == nil && w.options.UpdateIndex {
		err = w.updateIndex()
	}
	return err
}

// updateIndex adds the shard to the index of its folder, or replaces its entry. Entries are sorted by names.
func (w *writer) updateIndex() error {
	dir, name := filepath.Dir(w.path), filepath.Base(w.path)
	path := filepath.Join(dir, indexName)
	shards, err := rawShards(path)
	if err != nil {
		return err
	}
	entry := w.describe()
	entry["samples"] = len(w.sizes)
	packed := name
	for _, c := range compressedSuffixes {
		if strings.HasSuffix(name, c.suffix) {
			packed, entry["compression"] = strings.TrimSuffix(name, c.suffix), c.inIndex
		}
	}
	raw := map[string]any{"basename": packed, "bytes": w.Sink.Offset(), "hashes": map[string]string{}}
	entry["raw_data"], entry["zip_data"] = raw, nil
	if packed != name {
		size, err := sizeOf(w.path)
		if err != nil {
			return err
		}
		entry["zip_data"] = map[string]any{"basename": name, "bytes": size, "hashes": map[string]string{}}
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "mds: names: %v", err)
	}
	shards[packed] = text
	names := make([]string, 0, len(shards))
	for name := range shards {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([]json.RawMessage, len(names))
	for i, name := range names {
		all[i] = shards[name]
	}
	text, err = json.Marshal(map[string]any{"shards": all, "version": 2})
	if err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "mds: %v", err)
	}
	sink, err := storage.Create(path, "none")
	if err != nil {
		return err
	}
	if _, err = sink.Write(text); err != nil {
		sink.Abort()
		return err
	}
	return sink.Commit()
}
