package readers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
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
	check       func(attributes []byte) error
	// make owns the references to the readers in. It waits for files at most as long as ctx goes on; with [wait.Never]
	// it answers wait.ErrWouldBlock if it would have to.
	make func(ctx context.Context, scope *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error)
}

// read decodes attributes, over what they are by default, and checks them as far as that is possible without making
// a reader.
func read[A any](name string, defaults A, attributes []byte) (A, error) {
	a := defaults
	err := decode(name, attributes, &a)
	if c, is := any(&a).(interface{ check() error }); is && err == nil {
		err = c.check()
	}
	return a, err
}

// checker is an operator's check of attributes of type A.
func checker[A any](name string, defaults A) func([]byte) error {
	return func(attributes []byte) error {
		_, err := read(name, defaults, attributes)
		return err
	}
}

// decorator is an operator of one input with attributes of type A, filled in before with what they are by default.
func decorator[A any](name string, defaults A, create func(*ReaderHolder, *A) (Reader, error)) operator {
	return operator{1, 1, checker(name, defaults), func(_ context.Context, _ *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error) {
		a, err := read(name, defaults, attributes)
		if err == nil && name != "create_multi_pass_reader" { // which looks at nothing
			err = in[0].checkHost(name)
		}
		if err != nil {
			in[0].Drop()
			return nil, err
		}
		return create(in[0], &a)
	}}
}

// origin is an operator without input.
func origin[A any](name string, defaults A, create func(*pyfeed.Scope, *A) (Reader, error)) operator {
	return operator{0, 0, checker(name, defaults), func(_ context.Context, scope *pyfeed.Scope, _ []*ReaderHolder, attributes []byte) (Reader, error) {
		a, err := read(name, defaults, attributes)
		if err != nil {
			return nil, err
		}
		return create(scope, &a)
	}}
}

// opener is an operator that opens files.
func opener(name string, defaults filesAttributes, create func(context.Context, *filesAttributes) (Reader, error)) operator {
	return operator{0, 0, checker(name, defaults), func(ctx context.Context, _ *pyfeed.Scope, _ []*ReaderHolder, attributes []byte) (Reader, error) {
		a, err := read(name, defaults, attributes)
		if err != nil {
			return nil, err
		}
		return create(ctx, &a)
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
		Ragged    bool   `json:"ragged"`
	}
	shuffleAttributes struct {
		BufferSize uint64 `json:"buffer_size"`
		Seed       uint64 `json:"seed"`
	}
	multiPassAttributes struct {
		PassNum uint64 `json:"pass_num"`
	}
	doubleBufferAttributes struct {
		Place placeAttributes `json:"place"`
		Depth uint64          `json:"depth"`
	}
	placeAttribute struct {
		Kind   int32 `json:"kind"`
		Device int32 `json:"device"`
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
		Interleave int `json:"interleave"`
		// ShuffleFiles is the seed of the order in which the files come; nil: as they are listed.
		ShuffleFiles *uint64         `json:"shuffle_files"`
		OnCorrupt    string          `json:"on_corrupt"`
		VerifyFirst  bool            `json:"verify_first"`
		Storage      storage.Options `json:"storage"`
		Options      json.RawMessage `json:"options"`
	}
)

// placeAttributes are a place, or a list of them.
type placeAttributes []pyfeed.Place

// UnmarshalJSON reads an object, or a list of objects.
func (p *placeAttributes) UnmarshalJSON(data []byte) error {
	all := make([]placeAttribute, 1)
	var into any = &all[0]
	if data[0] == '[' {
		into = &all
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	*p = nil
	for _, a := range all {
		*p = append(*p, pyfeed.Place{Kind: pyfeed.PlaceKind(a.Kind), Device: a.Device})
	}
	return nil
}

// The checks of attributes are those of the constructors. A place may be one that another machine has.

func (a *batchAttributes) check() error     { return checkBatchSize(a.BatchSize) }
func (a *shuffleAttributes) check() error   { return checkBufferSize(a.BufferSize) }
func (a *multiPassAttributes) check() error { return checkPassNum(a.PassNum) }
func (a *doubleBufferAttributes) check() error {
	if err := checkDepth(a.Depth); err != nil {
		return err
	}
	return checkPlaces(a.Place)
}
func (a *shardAttributes) check() error { return checkShard(a.Rank, a.World) }
func (a *mapAttributes) check() error {
	if err := CheckSlots(a.Slots); err != nil {
		return err
	}
	return checkMapCapacity(a.Capacity)
}

func (a *randomAttributes) check() error {
	slots, _, err := slotsOf(a.Slots)
	if err != nil {
		return err
	}
	return checkRandom(slots, a.Low, a.High)
}

func (a *pyArrayAttributes) check() error {
	if a.FeederName == "" {
		return pyfeed.Errorf(pyfeed.Invalid, "feeder_name: expected the name of a queue's variable, found an empty string")
	}
	return nil
}

func (a *filesAttributes) check() error {
	switch {
	case len(a.Filenames) == 0:
		return pyfeed.Errorf(pyfeed.Invalid, "filenames: expected at least 1, found 0")
	case a.ThreadNum < 1 || a.ThreadNum > 1024:
		return pyfeed.Errorf(pyfeed.Invalid, "thread_num: expected 1 to 1024, found %d", a.ThreadNum)
	case a.Interleave < 1 || a.Interleave > 4096:
		return pyfeed.Errorf(pyfeed.Invalid, "interleave: expected 1 to 4096 files, found %d", a.Interleave)
	case a.OnCorrupt != "" && a.OnCorrupt != "raise" && a.OnCorrupt != "skip":
		return pyfeed.Errorf(pyfeed.Invalid, "on_corrupt: expected raise or skip, found %q", a.OnCorrupt)
	}
	if _, err := namesOf(a.Filenames); err != nil {
		return err
	}
	if err := a.Storage.Check(); err != nil {
		return err
	}
	return CheckSlots(a.Slots)
}

var operators = map[string]operator{
	"create_py_array_reader": origin("create_py_array_reader", pyArrayAttributes{}, createPyArrayReader),
	"create_batch_reader": decorator("create_batch_reader", batchAttributes{}, func(in *ReaderHolder, a *batchAttributes) (Reader, error) {
		return made(NewBatchReader(in, a.BatchSize, a.DropLast, a.Ragged))
	}),
	"create_shuffle_reader": decorator("create_shuffle_reader", shuffleAttributes{}, func(in *ReaderHolder, a *shuffleAttributes) (Reader, error) {
		return made(NewShuffleReader(in, a.BufferSize, a.Seed))
	}),
	"create_multi_pass_reader": decorator("create_multi_pass_reader", multiPassAttributes{}, func(in *ReaderHolder, a *multiPassAttributes) (Reader, error) {
		return made(NewMultiPassReader(in, a.PassNum))
	}),
	"create_double_buffer_reader": decorator("create_double_buffer_reader", doubleBufferAttributes{Place: placeAttributes{pyfeed.CPUPlace()}, Depth: 2}, func(in *ReaderHolder, a *doubleBufferAttributes) (Reader, error) {
		return made(NewDoubleBufferReader(in, a.Place, a.Depth))
	}),
	"create_shard_reader": decorator("create_shard_reader", shardAttributes{}, func(in *ReaderHolder, a *shardAttributes) (Reader, error) {
		return made(NewShardReader(in, a.Rank, a.World))
	}),
	"create_map_reader":            decorator("create_map_reader", mapAttributes{Capacity: 16, Ordered: true}, createMapReader),
	"create_zip_reader":            {2, 1 << 10, checker("create_zip_reader", zipAttributes{}), createZipReader},
	"create_random_data_generator": origin("create_random_data_generator", randomAttributes{High: 1, Count: -1}, createRandomDataGenerator),
	"create_file_reader":           opener("create_file_reader", filesAttributes{ThreadNum: 1, Interleave: 1}, createFileReader),
	"open_files":                   opener("open_files", filesAttributes{ThreadNum: 2, Ordered: true, Interleave: 8}, openFiles),
}

// made keeps a nil pointer from becoming a Reader.
func made[R Reader](r R, err error) (Reader, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Operators are the names of those that make readers, sorted.
func Operators() []string { return slices.Sorted(maps.Keys(operators)) }

// CheckOperator says what is wrong with an operator of n inputs and these attributes, as far as it can be said
// without making its reader.
func CheckOperator(op string, n int, attributes []byte) error {
	o, known := operators[op]
	if !known {
		return pyfeed.Errorf(pyfeed.NotFound, "operator: expected one of %s, found %q", strings.Join(Operators(), ", "), op)
	}
	if n < o.least || n > o.most {
		want := strconv.Itoa(o.least)
		if o.most > o.least {
			want += " or more"
		}
		return pyfeed.Errorf(pyfeed.Invalid, "%s: inputs: expected %s, found %d", op, want, n)
	}
	return o.check(attributes)
}

// MakeNow runs the operator op, which CheckOperator found good: it makes a reader of others, whose references it takes
// over. Attributes are a JSON object, or nothing. It does not wait for files: [wait.ErrWouldBlock] says that it would have
// to, and that [Open] does.
func MakeNow(scope *pyfeed.Scope, op string, in []*ReaderHolder, attributes []byte) (Reader, error) {
	return operators[op].make(wait.Never, scope, in, attributes)
}

// Create runs the operator op: it makes a reader from the readers in the variables ins and puts it into the variable
// out, which is made if need be. Attributes are a JSON object, or nothing.
func Create(scope *pyfeed.Scope, op, out string, ins []string, attributes []byte) error {
	return createReader(context.Background(), scope, op, out, ins, attributes)
}

// CreateNow is Create that does not wait for files: [wait.ErrWouldBlock] says that it would have to, and that [Open] does.
func CreateNow(scope *pyfeed.Scope, op, out string, ins []string, attributes []byte) error {
	return createReader(wait.Never, scope, op, out, ins, attributes)
}

func createReader(ctx context.Context, scope *pyfeed.Scope, op, out string, ins []string, attributes []byte) error {
	if err := CheckOperator(op, len(ins), attributes); err != nil {
		return err
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
	r, err := operators[op].make(ctx, scope, in, attributes)
	if err != nil {
		return err
	}
	return Put(scope, out, r)
}

// Put puts the reader, which it owns, into a variable, which is made if need be.
func Put(scope *pyfeed.Scope, out string, r Reader) error {
	v, err := scope.Var(out) // not before: where nothing is made, there is no variable
	if err != nil {
		r.Close()
		return err
	}
	return v.Set(NewHolder(r).Named(out))
}

// Delivered is what the tuples of an operator's reader look like, given that of the readers below; nil: that is not
// known before it is made.
func Delivered(op string, in [][]SlotAttributes, attributes []byte) ([]SlotAttributes, error) {
	switch op {
	case "open_files", "create_file_reader", "create_random_data_generator", "create_map_reader":
		var a struct {
			Slots []SlotAttributes `json:"slots"`
		}
		if err := json.Unmarshal(attributes, &a); err != nil && len(attributes) > 0 {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: attributes: %v", op, err)
		}
		if a.Slots == nil && op == "create_map_reader" {
			return in[0], nil
		}
		return checkSlots(a.Slots, false)
	case "create_py_array_reader":
		return nil, nil
	case "create_zip_reader":
		var all []SlotAttributes
		for _, slots := range in {
			if slots == nil {
				return nil, nil
			}
			all = append(all, slots...)
		}
		return all, nil
	case "create_batch_reader":
		return checkSlots(in[0], true)
	}
	return in[0], nil
}

// CheckSlots says what is wrong with slots.
func CheckSlots(all []SlotAttributes) error {
	_, err := checkSlots(all, false)
	return err
}

// checkSlots refuses slots that make no sense, and answers those of batches of them, if batched.
func checkSlots(all []SlotAttributes, batched bool) ([]SlotAttributes, error) {
	if all == nil {
		return nil, nil
	}
	slots, _, err := slotsOf(all)
	if err != nil {
		return nil, err
	}
	spec, err := pyfeed.NewSpec(slots)
	if err == nil && batched {
		spec, err = spec.Batched()
	}
	if err != nil {
		return nil, err
	}
	return Describe(spec), nil
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

func createZipReader(_ context.Context, _ *pyfeed.Scope, in []*ReaderHolder, attributes []byte) (Reader, error) {
	var a zipAttributes
	err := decode("create_zip_reader", attributes, &a)
	for _, h := range in {
		err = cmp.Or(err, h.checkHost("create_zip_reader"))
	}
	if err != nil {
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
func openSources(ctx context.Context, a *filesAttributes) ([]source, *files, error) {
	names, err := namesOf(a.Filenames)
	if err != nil {
		return nil, nil, err
	}
	sources, err := list(ctx, names, a.Format)
	if err != nil {
		return nil, nil, err
	}
	f := &files{skip: a.OnCorrupt == "skip", verifyFirst: a.VerifyFirst, pool: memory.NewPool(memory.File)}
	if a.VerifyFirst {
		err = allTwice(ctx, sources)
	}
	if err == nil {
		f.configs, err = f.configure(sources, a)
	}
	if err == nil {
		f.spec, err = f.infer(ctx, sources[0])
	}
	if err != nil {
		f.close()
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

// infer makes the Spec, from the first file if nobody has said what instances look like. A pipe gives what it has once,
// and is kept. With [wait.Never] it gives up what turns out to take long.
func (f *files) infer(ctx context.Context, first source) (spec *pyfeed.Spec, err error) {
	config := f.configs[first.format.Tag]
	if config.Slots == nil {
		c := *config
		pipe := storage.IsPipe(first.path)
		if ctx == wait.Never && pipe {
			return nil, wait.ErrWouldBlock
		}
		stop := new(storage.Interrupt)
		c.Storage.Interrupt = stop
		if ctx == wait.Never {
			stop.Limit(new(patience).over)
		} else {
			defer context.AfterFunc(ctx, stop.Now)()
		}
		defer func() {
			switch {
			case err != storage.ErrInterrupted:
			case ctx == wait.Never:
				err = wait.ErrWouldBlock
			default:
				err = context.Cause(ctx)
			}
		}()
		file := file{source: first, files: f} // for where damage is
		records, err := first.format.Open(first.path, &c)
		if storage.IsPageFault(err) { // what can be read may tell all the same
			c.Storage.IO = "read"
			records, err = first.format.Open(first.path, &c)
		}
		if err != nil {
			return nil, file.locate(err, -1)
		}
		kept := false
		defer func() {
			if !kept {
				records.Close()
			}
		}()
		d, can := records.(Described)
		if !can {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: format %q does not say what its instances look like: give slots", first.path, first.format.Tag)
		}
		slots, names, err := d.Describe()
		for f.skip && isCorrupt(err) {
			if pipe { // it is not read again
				f.ledger.add(file.locate(err, -1).(*pyfeed.Error))
			}
			if behind := records.Resync(); behind != nil {
				if behind == storage.ErrInterrupted {
					err = behind
				}
				break
			}
			file.renumber(records)
			if slots, names, err = d.Describe(); isCorrupt(err) && stop.Look() != nil {
				err = storage.ErrInterrupted
			}
		}
		if err != nil {
			return nil, file.locate(err, -1)
		}
		for i := range min(len(slots), len(names)) {
			slots[i].Name = names[i]
		}
		for _, c := range f.configs {
			c.Slots, c.Names, c.Inferred = slots, names, true
		}
		if kept = pipe; kept {
			f.opened = opened{first.path, records, stop, file.record, file.guess}
		}
	}
	return pyfeed.NewSpec(config.Slots)
}

func createFileReader(ctx context.Context, a *filesAttributes) (Reader, error) {
	sources, f, err := openSources(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(sources) != 1 {
		f.close()
		return nil, pyfeed.Errorf(pyfeed.Invalid, "create_file_reader: expected 1 file, found %d: open_files reads many", len(sources))
	}
	if sources[0].format.Waits || storage.IsPipe(sources[0].path) {
		return newMultipleReader(sources, f, &filesAttributes{ThreadNum: 1, Ordered: true, Interleave: 1}), nil
	}
	return newFileReader(sources[0], f), nil
}

func openFiles(ctx context.Context, a *filesAttributes) (Reader, error) {
	sources, f, err := openSources(ctx, a)
	if err != nil {
		return nil, err
	}
	return newMultipleReader(sources, f, a), nil
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
	path, f := prefixed(name)
	if format != "" {
		given, err := formatOf(format)
		if err != nil {
			return nil, err
		}
		if f != given {
			path = name
		}
		f = given
	}
	if f == nil {
		f = bySuffix(path)
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
	defer t.Release()
	for i := range t.Slots {
		if err := vars[i].SetTensor(&t.Slots[i]); err != nil {
			return err
		}
	}
	return nil
}
