package mds

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// hashes are the hash functions of an index that can be computed.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
	"xxh32": newXXH32, "xxh64": func() hash.Hash { return xxhash.New() },
}

// verification compares a shard with the index of its folder. An interrupted one goes on where it was.
type verification struct {
	stored *storedFile // nil: it has not begun
	source *os.File
	sums   map[string]hash.Hash
	size   int64
}

func (v *verification) close() {
	if v.source != nil {
		_ = v.source.Close()
	}
	*v = verification{}
}

// Verify implements record.Verifier: it compares the size, the hashes and the number of samples with those of the index.
// A shard that no index lists is not checked.
func (r *records) Verify() error {
	v, path := &r.verification, r.file.Path()
	if v.stored == nil {
		shards, err := readIndex(filepath.Dir(path))
		if shards == nil || err != nil {
			return err
		}
		name := filepath.Base(path)
		i := slices.IndexFunc(shards, func(s shard) bool { return s.Raw.Basename == name || s.Zip != nil && s.Zip.Basename == name })
		if i < 0 {
			return nil
		}
		s := &shards[i]
		if s.Samples != r.count {
			return r.file.Corrupt(0, -1, "expected %d samples, as %s says, found %d", s.Samples, indexName, r.count)
		}
		stored := s.Raw
		if stored.Basename != name {
			stored = s.Zip
		}
		sums := make(map[string]hash.Hash)
		for kind := range stored.Hashes {
			if newHash := hashes[kind]; newHash != nil {
				sums[kind] = newHash()
			}
		}
		if len(sums) == 0 && len(stored.Hashes) > 0 {
			found := slices.Sorted(maps.Keys(stored.Hashes))
			return r.file.Errorf(pyfeed.Unsupported, -1, "%s: shard %d: expected one of the hashes md5, sha1, sha224, sha256, sha384, sha512, xxh32 and xxh64, found %.100q",
				indexName, i, found)
		}
		source, err := os.Open(path)
		if err != nil {
			return indexError(pyfeed.IO, path, err.Error(), err)
		}
		v.stored, v.source, v.sums = stored, source, sums
	}
	block := make([]byte, 1<<20)
	for {
		if err := r.file.Poll(); err != nil {
			return err
		}
		n, err := v.source.Read(block)
		for _, sum := range v.sums {
			_, _ = sum.Write(block[:n]) // never fails
		}
		if v.size += int64(n); err == io.EOF {
			break
		}
		if err != nil {
			return indexError(pyfeed.IO, path, err.Error(), err)
		}
	}
	defer v.close()
	if v.size != v.stored.Bytes {
		return r.file.Corrupt(0, -1, "expected %d bytes, as %s says, found %d", v.stored.Bytes, indexName, v.size)
	}
	for kind, sum := range v.sums {
		expected, found := strings.ToLower(v.stored.Hashes[kind]), hex.EncodeToString(sum.Sum(nil))
		if expected != found {
			return r.file.Corrupt(0, -1, "%s: expected %.128s, as %s says, found %s", kind, expected, indexName, found)
		}
	}
	return nil
}
