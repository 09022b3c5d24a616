// Package fakecuda builds the fake CUDA driver of this folder, a libcuda.so.1 that uses host memory, and controls it
// from Go tests. fakecuda.h describes the fake, its counts and all functions in full.
//
// A test builds the fake, makes package cuda open the driver from that path, and controls the same copy of the library:
//
//	path := fakecuda.Build(t)
//	fakecuda.Load(path)
//	... driver.OpenFile(path)
//	fakecuda.Fail("cuMemAlloc_v2", 3, 2, false)
//
// Streams and addresses are those of CUDA, as integers. Codes are CUresults, 0 for success. The functions panic if they
// get an unknown name.
package fakecuda

/*
#include <dlfcn.h>
#include <stdlib.h>

#include "fakecuda.h"

// The functions of fakecuda.h are called through pointers, under other names, so that the fake is not linked.
#define FUNCTIONS(F)                                                                                           \
	F(int64_t, count, (const char *name), (name))                                                              \
	F(int, await, (const char *name, int64_t at_least, double seconds), (name, at_least, seconds))             \
	F(const char *, complaint, (void), ())                                                                     \
	F(uint64_t, stream_at, (int i), (i))                                                                       \
	F(int, fail, (const char *call, int64_t nth, int code, int later, int on), (call, nth, code, later, on))   \
	F(int, break, (int device, int code), (device, code))                                                      \
	F(int, let, (uint64_t stream, int64_t n), (stream, n))                                                     \
	F(int, let_copies, (int device, int64_t n), (device, n))                                                   \
	F(int, stream_create, (int device, int non_blocking, uint64_t *stream), (device, non_blocking, stream))    \
	F(int, stream_destroy, (uint64_t stream), (stream))                                                        \
	F(int, synchronize, (uint64_t stream), (stream))                                                           \
	F(int, kernel, (uint64_t stream, double us, uint64_t reads, uint64_t nreads, uint64_t writes,              \
		uint64_t nwrites, int code), (stream, us, reads, nreads, writes, nwrites, code))                       \
	F(int, sum, (uint64_t stream, uint64_t address, uint64_t n, uint64_t *out), (stream, address, n, out))     \
	F(uint64_t, hash, (const void *p, uint64_t n), (p, n))                                                     \
	F(int, peek, (uint64_t address, void *to, uint64_t n), (address, to, n))                                   \
	F(int, begin_capture, (uint64_t stream, int mode), (stream, mode))                                         \
	F(int, end_capture, (uint64_t stream), (stream))
#define ACTIONS(F)                                                                                             \
	F(reset, (void), ())                                                                                       \
	F(devices, (int n), (n))                                                                                   \
	F(memory, (uint64_t bytes), (bytes))                                                                       \
	F(pinned, (uint64_t bytes), (bytes))                                                                       \
	F(pace, (double gbps, double latency_us), (gbps, latency_us))                                              \
	F(deinitialize, (int yes), (yes))

#define F(result, name, parameters, arguments)               \
	static __typeof__(fakecuda_##name) *to_##name;           \
	static result call_##name parameters { return to_##name arguments; }
FUNCTIONS(F)
#undef F
#define F(name, parameters, arguments)                       \
	static __typeof__(fakecuda_##name) *to_##name;           \
	static void call_##name parameters { to_##name arguments; }
ACTIONS(F)
#undef F

// load opens the library and finds its functions. It returns a description of the error, or NULL.
static const char *load(const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return dlerror();
#define LOAD(name)                                                         \
	to_##name = (__typeof__(to_##name))dlsym(library, "fakecuda_" #name);  \
	if (!to_##name) return dlerror();
#define F(result, name, parameters, arguments) LOAD(name)
	FUNCTIONS(F)
#undef F
#define F(name, parameters, arguments) LOAD(name)
	ACTIONS(F)
#undef F
	return NULL;
}
*/
import "C"

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// Folder returns the folder of the sources.
func Folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// flags returns the compiler flags with which Go compiles package cuda. They tell where cuda.h is.
var flags = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "CGO_CPPFLAGS", "CGO_CFLAGS").Output() // without Go, build.sh reports the missing flag
	return strings.Join(strings.Fields(string(out)), " ")
})

// Environment returns the environment of this process, with the flags for cuda.h in CGO_CPPFLAGS.
func Environment() []string { return append(os.Environ(), "CGO_CPPFLAGS="+flags(), "CGO_CFLAGS=") }

var build = sync.OnceValues(func() (string, error) { return BuildWith("") })

// Build compiles the fake and returns the path of its libcuda.so.1. All tests share the library that was built from the
// same sources.
func Build(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// BuildWith is Build with more flags for the compiler, -fsanitize=thread for example.
func BuildWith(more string) (string, error) {
	sources, err := filepath.Glob(filepath.Join(Folder(), "libcuda", "*"))
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, os.Getenv("CC"), flags(), more)
	for _, path := range append(sources, filepath.Join(Folder(), "fakecuda.h"), filepath.Join(Folder(), "build.sh")) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		hash.Write(text)
	}
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("fakecuda-%d-%x", os.Getuid(), hash.Sum(nil)[:8]))
	path := filepath.Join(folder, "libcuda.so.1")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("sh", filepath.Join(Folder(), "build.sh"), folder)
	cmd.Env = append(Environment(), "CFLAGS="+more)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, out)
	}
	return path, nil
}

// Load opens the library for the functions below. All code in the process that opens this path uses the same copy.
func Load(path string) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if why := C.load(name); why != nil {
		panic("fakecuda: " + C.GoString(why))
	}
}

func named(name string, f func(*C.char) C.int64_t) int64 {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	n := int64(f(s))
	if n < 0 {
		panic("fakecuda: expected the name of a count or an entry point, found " + name)
	}
	return n
}

// Count returns one of the counts of fakecuda.h.
func Count(name string) int64 {
	return named(name, func(s *C.char) C.int64_t { return C.call_count(s) })
}

// Calls returns how often an entry point, such as "cuMemAlloc_v2", was called.
func Calls(name string) int64 { return Count(name) }

// Await waits until a count, or the number of calls of an entry point, is at least atLeast. It returns false after the
// time limit.
func Await(name string, atLeast int64, limit time.Duration) bool {
	return named(name, func(s *C.char) C.int64_t {
		return C.int64_t(C.call_await(s, C.int64_t(atLeast), C.double(limit.Seconds())))
	}) == 1
}

// Complaint describes the last hazard, misuse or leak.
func Complaint() string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return C.GoString(C.call_complaint())
}

// Streams returns the streams that were created and not destroyed, in the order of their creation.
func Streams() []uint64 {
	var all []uint64
	for {
		s := uint64(C.call_stream_at(C.int(len(all))))
		if s == 0 {
			return all
		}
		all = append(all, s)
	}
}

// Reset resets settings, counts, failures, captures and broken contexts. Existing streams, events and memory remain.
func Reset() { C.call_reset() }

func fail(call string, nth, code int, later, on bool) {
	s := C.CString(call)
	defer C.free(unsafe.Pointer(s))
	if C.call_fail(s, C.int64_t(nth), C.int(code), truth(later), truth(on)) != 0 {
		panic(fmt.Sprintf("fakecuda: expected an entry point or *, and numbers from 1, found %s, %d, %d", call, nth, code))
	}
}

func truth(is bool) C.int {
	if is {
		return 1
	}
	return 0
}

// Fail makes the nth call of an entry point ("*": of any) from now on fail with a code. If later is true, the call
// succeeds and its work fails when it runs.
func Fail(call string, nth, code int, later bool) { fail(call, nth, code, later, false) }

// FailFrom makes the nth and all later calls fail.
func FailFrom(call string, nth, code int) { fail(call, nth, code, false, true) }

// Break breaks the context of a device.
func Break(device, code int) int { return int(C.call_break(C.int(device), C.int(code))) }

// SetDevices sets the number of devices. It must be called before cuInit.
func SetDevices(n int) { C.call_devices(C.int(n)) }

// SetMemory limits the memory of each device.
func SetMemory(bytes int64) { C.call_memory(C.uint64_t(bytes)) }

// SetPinned limits pinned and registered memory together.
func SetPinned(bytes int64) { C.call_pinned(C.uint64_t(bytes)) }

// SetBandwidth sets the speed of copies to and from the host, in 1e9 bytes a second, and the additional time of each.
func SetBandwidth(gbps float64, latency time.Duration) {
	C.call_pace(C.double(gbps), C.double(latency.Seconds()*1e6))
}

// Deinitialize makes every call fail as at the end of the process, until it is called with false.
func Deinitialize(yes bool) { C.call_deinitialize(truth(yes)) }

// Pause holds a stream. No work of the stream is running when Pause returns.
func Pause(stream uint64) int { return Let(stream, 0) }

// Resume lets all work of a stream begin again.
func Resume(stream uint64) int { return Let(stream, -1) }

// Let lets n more pieces of work of a stream begin.
func Let(stream uint64, n int) int { return int(C.call_let(C.uint64_t(stream), C.int64_t(n))) }

// PauseCopies holds copies to a device, in all streams.
func PauseCopies(device int) int { return LetCopies(device, 0) }

// ResumeCopies lets all copies to a device begin again.
func ResumeCopies(device int) int { return LetCopies(device, -1) }

// LetCopies lets n more copies to a device begin.
func LetCopies(device, n int) int { return int(C.call_let_copies(C.int(device), C.int64_t(n))) }

// NewStream creates a stream in the primary context of a device, as a consumer does.
func NewStream(device int, nonBlocking bool) (stream uint64, code int) {
	var s C.uint64_t
	code = int(C.call_stream_create(C.int(device), truth(nonBlocking), &s))
	return uint64(s), code
}

// DestroyStream waits for the work of a stream of NewStream and destroys the stream.
func DestroyStream(stream uint64) int { return int(C.call_stream_destroy(C.uint64_t(stream))) }

// Synchronize waits for the work of a stream.
func Synchronize(stream uint64) int { return int(C.call_synchronize(C.uint64_t(stream))) }

// A Range is a range of device memory.
type Range struct{ Address, Bytes uint64 }

// Kernel submits work that takes some time, reads one range and fills another with 0xC3. If code is not 0, the work
// fails with it when it runs.
func Kernel(stream uint64, takes time.Duration, reads, writes Range, code int) int {
	return int(C.call_kernel(C.uint64_t(stream), C.double(takes.Seconds()*1e6), C.uint64_t(reads.Address), C.uint64_t(reads.Bytes),
		C.uint64_t(writes.Address), C.uint64_t(writes.Bytes), C.int(code)))
}

// A Hashed is the hash of device memory at a point of a stream.
type Hashed struct {
	stream uint64
	out    *C.uint64_t
}

// Sum submits work that hashes device memory.
func Sum(stream, address, bytes uint64) (h Hashed, code int) {
	h = Hashed{stream, (*C.uint64_t)(C.calloc(1, 8))}
	if code = int(C.call_sum(C.uint64_t(stream), C.uint64_t(address), C.uint64_t(bytes), h.out)); code != 0 {
		C.free(unsafe.Pointer(h.out))
	}
	return h, code
}

// Value waits for the stream and returns the hash, which can be compared with that of Hash. It must be called once.
func (h Hashed) Value() (hash uint64, code int) {
	code = Synchronize(h.stream)
	hash = uint64(*h.out)
	C.free(unsafe.Pointer(h.out))
	return hash, code
}

// Hash returns the hash of host memory, for comparison with that of Sum.
func Hash(b []byte) uint64 {
	return uint64(C.call_hash(unsafe.Pointer(unsafe.SliceData(b)), C.uint64_t(len(b))))
}

// Peek returns device memory as it is now.
func Peek(address uint64, n int) (b []byte, code int) {
	b = make([]byte, n)
	code = int(C.call_peek(C.uint64_t(address), unsafe.Pointer(unsafe.SliceData(b)), C.uint64_t(n)))
	return b, code
}

// The modes of captures, which decide what other threads may call meanwhile.
const (
	Global = iota
	ThreadLocal
	Relaxed
)

// BeginCapture begins to capture a stream, in the calling thread. If the mode is not Relaxed, the test must lock its
// goroutine to the thread.
func BeginCapture(stream uint64, mode int) int {
	return int(C.call_begin_capture(C.uint64_t(stream), C.int(mode)))
}

// EndCapture ends a capture and returns the result of cuStreamEndCapture.
func EndCapture(stream uint64) int { return int(C.call_end_capture(C.uint64_t(stream))) }
