package readers

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Of is the reader in a variable, with a reference that the caller drops.
func Of(v *pyfeed.Variable) (*ReaderHolder, error) {
	var h *ReaderHolder
	v.With(func(c pyfeed.Content) {
		if held, ok := c.(*ReaderHolder); ok {
			h = held.Retain()
		}
	})
	if h == nil {
		return nil, pyfeed.Errorf(pyfeed.State, "variable %q: expected a reader in it, found none", v.Name())
	}
	return h, nil
}

func find(scope *pyfeed.Scope, name string) (*ReaderHolder, error) {
	v, err := scope.FindVar(name)
	if err != nil {
		return nil, err
	}
	return Of(v)
}

// An operator makes a reader.
type operator struct {
	least, most int // inputs
	// make owns the references to the readers in.
	make func(scope *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error)
}

// decorator is an operator of one input with attributes of type A, filled in before with what they are by default.
func decorator[A any](name string, defaults A, create func(*ReaderHolder, *A) (Reader, error)) operator {
	return operator{1, 1, func(_ *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error) {
		a := defaults
		if err := decode(name, attributes, &a); err != nil {
			in[0].Drop()
			return nil, err
		}
		return create(in[0], &a)
	}}
}

// origin is an operator without input.
func origin[A any](name string, defaults A, create func(*pyfeed.Scope, *A) (Reader, error)) operator {
	return operator{0, 0, func(scope *pyfeed.Scope, _ []*ReaderHolder, attributes []byte) (Reader, error) {
		a := defaults
		if err := decode(name, attributes, &a); err != nil {
			return nil, err
		}
		return create(scope, &a)
	}}
}

// Attributes of the operators. Their JSON names are what programs say.
type (
	pyArrayAttributes struct {
		FeederName string `json:"feeder_name"`
	}
	batchAttributes struct {
		BatchSize uint64 `json:"batch_size"`
		DropLast  bool   `json:"drop_last"`
	}
	shuffleAttributes struct {
		BufferSize uint64 `json:"buffer_size"`
		Seed       uint64 `json:"seed"`
	}
	multiPassAttributes struct {
		PassNum uint64 `json:"pass_num"`
	}
	doubleBufferAttributes struct {
		Place struct {
			Kind   int32 `json:"kind"`
			Device int32 `json:"device"`
		} `json:"place"`
		Depth uint64 `json:"depth"`
	}
	shardAttributes struct {
		Rank  uint64 `json:"rank"`
		World uint64 `json:"world"`
	}
	zipAttributes struct {
		Strict bool `json:"strict"`
	}
	mapAttributes struct {
		Slots    []SlotAttributes `json:"slots"`
		Capacity uint64           `json:"capacity"`
		Ordered  bool             `json:"ordered"`
	}
	randomAttributes struct {
		Slots []SlotAttributes `json:"slots"`
		Low   float64          `json:"low"`
		High  float64          `json:"high"`
		Seed  uint64           `json:"seed"`
		Count int64            `json:"count"`
	}
	filesAttributes struct {
		Filenames []string         `json:"filenames"`
		Format    string           `json:"format"`
		Slots     []SlotAttributes `json:"slots"`
		ThreadNum int              `json:"thread_num"`
		Ordered   bool             `json:"ordered"`
		// Interleave is how many files are read in turn when ordered.
		Interleave int             `json:"interleave"`
		OnCorrupt  string          `json:"on_corrupt"`
		Storage    storage.Options `json:"storage"`
		Options    json.RawMessage `json:"options"`
	}
)

var operators = map[string]operator{
	"create_py_array_reader": origin("create_py_array_reader", pyArrayAttributes{}, createPyArrayReader),
	"create_batch_reader": decorator("create_batch_reader", batchAttributes{}, func(in *ReaderHolder, a *batchAttributes) (Reader, error) {
		return made(NewBatchReader(in, a.BatchSize, a.DropLast))
	}),
	"create_shuffle_reader": decorator("create_shuffle_reader", shuffleAttributes{}, func(in *ReaderHolder, a *shuffleAttributes) (Reader, error) {
		return made(NewShuffleReader(in, a.BufferSize, a.Seed))
	}),
	"create_multi_pass_reader": decorator("create_multi_pass_reader", multiPassAttributes{}, func(in *ReaderHolder, a *multiPassAttributes) (Reader, error) {
		return made(NewMultiPassReader(in, a.PassNum))
	}),
	"create_double_buffer_reader": decorator("create_double_buffer_reader", doubleBufferAttributes{Depth: 2}, func(in *ReaderHolder, a *doubleBufferAttributes) (Reader, error) {
		return made(NewDoubleBufferReader(in, pyfeed.Place{Kind: pyfeed.PlaceKind(a.Place.Kind), Device: a.Place.Device}, a.Depth))
	}),
	"create_shard_reader": decorator("create_shard_reader", shardAttributes{}, func(in *ReaderHolder, a *shardAttributes) (Reader, error) {
		return made(NewShardReader(in, a.Rank, a.World))
	}),
	"create_map_reader":            decorator("create_map_reader", mapAttributes{Capacity: 16, Ordered: true}, createMapReader),
	"create_zip_reader":            {2, 1 << 10, createZipReader},
	"create_random_data_generator": origin("create_random_data_generator", randomAttributes{High: 1, Count: -1}, createRandomDataGenerator),
	"create_file_reader":           origin("create_file_reader", filesAttributes{}, createFileReader),
	"open_files":                   origin("open_files", filesAttributes{ThreadNum: 2, Ordered: true, Interleave: 8}, openFiles),
}

// made keeps a nil pointer from becoming a Reader.
func made[R Reader](r R, err error) (Reader, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Create runs the operator op: it makes a reader from the readers in the variables ins and puts it into the variable
// out, which is made if need be. Attributes are a JSON object, or nothing.
func Create(scope *pyfeed.Scope, op, out string, ins []string, attributes []byte) error {
	o, known := operators[op]
	if !known {
		var all []string
		for name := range operators {
			all = append(all, name)
		}
		sort.Strings(all)
		return pyfeed.Errorf(pyfeed.NotFound, "operator: expected one of %s, found %q", strings.Join(all, ", "), op)
	}
	if len(ins) < o.least || len(ins) > o.most {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: inputs: expected %d, found %d", op, o.least, len(ins))
	}
	var in []*ReaderHolder
	for _, name := range ins {
		h, err := find(scope, name)
		if err != nil {
			for _, h := range in {
				h.Drop()
			}
			return err
		}
		in = append(in, h)
	}
	r, err := o.make(scope, in, attributes)
	if err != nil {
		return err
	}
	v, err := scope.Var(out) // not before: where nothing is made, there is no variable
	if err != nil {
		r.Close()
		return err
	}
	v.Set(NewHolder(r))
	return nil
}

func createPyArrayReader(scope *pyfeed.Scope, a *pyArrayAttributes) (Reader, error) {
	v, err := scope.FindVar(a.FeederName)
	if err != nil {
		return nil, err
	}
	q, err := v.Feeder()
	if err != nil {
		return nil, err
	}
	return NewPyArrayReader(q), nil
}

func createMapReader(in *ReaderHolder, a *mapAttributes) (Reader, error) {
	var spec *pyfeed.Spec
	if a.Slots != nil {
		slots, _, err := slotsOf(a.Slots)
		if err == nil {
			spec, err = pyfeed.NewSpec(slots)
		}
		if err != nil {
			in.Drop()
			return nil, err
		}
	}
	return made(NewMapReader(in, spec, a.Capacity, a.Ordered))
}

func createZipReader(_ *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error) {
	var a zipAttributes
	if err := decode("create_zip_reader", attributes, &a); err != nil {
		for _, h := range in {
			h.Drop()
		}
		return nil, err
	}
	return made(NewZipReader(in, a.Strict))
}

func createRandomDataGenerator(_ *pyfeed.Scope, a *randomAttributes) (Reader, error) {
	slots, _, err := slotsOf(a.Slots)
	if err != nil {
		return nil, err
	}
	return made(NewRandomDataGenerator(slots, a.Low, a.High, a.Seed, a.Count))
}

// openSources is what open_files and create_file_reader have in common: the files, and what their instances
// look like, for which the first of them is asked if the attributes do not say.
func openSources(a *filesAttributes) ([]source, *files, error) {
	sources, err := list(a.Filenames, a.Format)
	if err != nil {
		return nil, nil, err
	}
	f := &files{}
	switch a.OnCorrupt {
	case "", "raise":
	case "skip":
		f.skip = true
	default:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "on_corrupt: expected raise or skip, found %q", a.OnCorrupt)
	}
	f.pool = memory.NewPool(memory.File)
	if f.configs, err = f.configure(sources, a); err == nil {
		f.spec, err = f.infer(sources[0])
	}
	if err != nil {
		f.pool.Close()
		return nil, nil, err
	}
	return sources, f, nil
}

// configure makes a Config for each format of the sources. Where they have several, options are by tag.
func (f *files) configure(sources []source, a *filesAttributes) (map[string]*Config, error) {
	tags := tagsOf(sources)
	options := map[string]json.RawMessage{tags[0]: a.Options}
	if len(tags) > 1 {
		options = nil
		if err := decode("open_files: options of files of several formats, by tag", a.Options, &options); err != nil {
			return nil, err
		}
		for tag := range options {
			if !slices.Contains(tags, tag) {
				return nil, pyfeed.Errorf(pyfeed.Invalid, "options: expected those of formats %s by tag, found %q", strings.Join(tags, ", "), tag)
			}
		}
	}
	all := make(map[string]*Config)
	for _, s := range sources {
		tag := s.format.Tag
		if all[tag] != nil {
			continue
		}
		c, err := configure(s.format, a.Slots, options[tag], a.Storage)
		if err != nil {
			return nil, err
		}
		c.Pool = f.pool
		all[tag] = &c
	}
	return all, nil
}

// configure makes a Config of attributes.
func configure(format *Format, slots []SlotAttributes, options json.RawMessage, from storage.Options) (Config, error) {
	c := Config{Storage: from}
	err := from.Check()
	if err == nil && slots != nil {
		c.Slots, c.Names, err = slotsOf(slots)
	}
	if err != nil {
		return c, err
	}
	if format.Options != nil {
		c.Options = format.Options()
		return c, decode(format.Tag, options, c.Options)
	}
	return c, decode(format.Tag, options, &struct{}{})
}

// infer makes the Spec, from the first file if nobody has said what instances look like.
func (f *files) infer(first source) (*pyfeed.Spec, error) {
	config := f.configs[first.format.Tag]
	if config.Slots == nil {
		c := *config
		records, err := first.format.Open(first.path, &c)
		if err != nil {
			return nil, err
		}
		defer records.Close()
		d, can := records.(Described)
		if !can {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: format %q does not say what its instances look like: give slots", first.path, first.format.Tag)
		}
		slots, names, err := d.Describe()
		for f.skip && isCorrupt(err) && records.Resync() == nil {
			slots, names, err = d.Describe()
		}
		if err != nil {
			return nil, err
		}
		for i := range min(len(slots), len(names)) {
			slots[i].Name = names[i]
		}
		for _, c := range f.configs {
			c.Slots, c.Names = slots, names
		}
	}
	return pyfeed.NewSpec(config.Slots)
}

func createFileReader(_ *pyfeed.Scope, a *filesAttributes) (Reader, error) {
	sources, f, err := openSources(a)
	if err != nil {
		return nil, err
	}
	if len(sources) != 1 {
		f.pool.Close()
		return nil, pyfeed.Errorf(pyfeed.Invalid, "create_file_reader: expected 1 file, found %d: open_files reads many", len(sources))
	}
	if sources[0].format.Waits {
		return newMultipleReader(sources, f, 1, true, 1), nil
	}
	return newFileReader(sources[0], f), nil
}

func openFiles(_ *pyfeed.Scope, a *filesAttributes) (Reader, error) {
	if a.ThreadNum < 1 || a.ThreadNum > 1024 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "thread_num: expected 1 to 1024, found %d", a.ThreadNum)
	}
	if a.Interleave < 1 || a.Interleave > 4096 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "interleave: expected 1 to 4096 files, found %d", a.Interleave)
	}
	sources, f, err := openSources(a)
	if err != nil {
		return nil, err
	}
	return newMultipleReader(sources, f, a.ThreadNum, a.Ordered, a.Interleave), nil
}

// CreateWriter begins a file. The name says its format as for open_files, unless format does. compression,
// slots and options as the format has them.
func CreateWriter(name, format string, attributes []byte) (Writer, error) {
	var a struct {
		Slots   []SlotAttributes `json:"slots"`
		Names   []string         `json:"names"` // without slots: the first tuple tells the rest of them
		Options json.RawMessage  `json:"options"`
	}
	if err := decode("writer", attributes, &a); err != nil {
		return nil, err
	}
	path, f := split(name)
	if format != "" {
		var err error
		if f, err = formatOf(format); err != nil {
			return nil, err
		}
		path = strings.TrimPrefix(name, f.Tag+":")
	}
	if f == nil {
		return nil, unknown(name)
	}
	if f.Create == nil {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "format %q is only read", f.Tag)
	}
	c, err := configure(f, a.Slots, a.Options, storage.Options{})
	if err != nil {
		return nil, err
	}
	if a.Slots != nil && a.Names != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "writer: names: expected none beside slots, which have their own")
	}
	if a.Slots == nil {
		c.Names = a.Names
	}
	c.Pool = memory.NewPool(memory.File)
	w, err := f.Create(path, &c)
	if err != nil {
		c.Pool.Close()
		return nil, err
	}
	return &pooledWriter{w, c.Pool}, nil
}

// pooledWriter closes the Writer's pool with it.
type pooledWriter struct {
	Writer
	pool *memory.Pool
}

func (w *pooledWriter) Close() error {
	defer w.pool.Close()
	return w.Writer.Close()
}

func (w *pooledWriter) Abort() {
	w.Writer.Abort()
	w.pool.Close()
}

// Read is the read op: the next tuple of the reader in the variable reader, slot by slot into the
// variables outs. Nothing is copied. At the end of the pass the variables stay as they are.
func Read(ctx context.Context, scope *pyfeed.Scope, reader string, outs []string) error {
	h, err := find(scope, reader)
	if err != nil {
		return err
	}
	defer h.Drop()
	if n := h.Spec().Len(); n != len(outs) {
		return pyfeed.Errorf(pyfeed.Slots, "read: reader %q has %d slots, but %d outputs were named", reader, n, len(outs))
	}
	vars := make([]*pyfeed.Variable, 0, 8)
	for _, name := range outs {
		v, err := scope.FindVar(name)
		if err != nil {
			if v, err = scope.Var(name); err != nil {
				return err
			}
		}
		vars = append(vars, v)
	}
	t, err := h.ReadNext(ctx)
	if err != nil {
		return err
	}
	for i := range t.Slots {
		vars[i].SetTensor(&t.Slots[i])
	}
	t.Release()
	return nil
}
