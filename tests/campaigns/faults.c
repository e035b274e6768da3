// A layer over the C library: calls that change files below a folder are counted, and fail or end the process at the
// k-th. Loaded by LD_PRELOAD; a copy of a process is armed by itself. See faults.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kOff, kCount, kKill, kTear, kFull, kReadOnly, kPower };
enum { kFiles = 4096 };

static char below[PATH_MAX];
static int how = kOff;
static long at = 0;
static long count = 0;
static char kinds[1 << 16];
// Files that were opened for writing: how long they are on the disk, and whether they were changed since.
static struct {
  ino_t file;
  off_t synced;
  int changed;
} files[kFiles];
static int n_files = 0;

void fault_arm(const char *folder, int way, long k) {
  snprintf(below, sizeof below, "%s/", folder);
  at = k;
  count = n_files = 0;
  memset(kinds, 0, sizeof kinds);
  how = way;
}

// One letter per call, in their order: w write, o open for writing, m make a folder, t truncate, f sync, r rename,
// u unlink.
const char *fault_kinds(void) { return kinds; }

static int is_below(const char *path) { return strncmp(path, below, strlen(below)) == 0; }

static int concerns_number(int number) {
  char link[64], path[PATH_MAX + 1];
  if (how == kOff) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", number);
  ssize_t n = readlink(link, path, PATH_MAX);
  if (n < 0) return 0;
  path[n] = '\0';
  strncat(path, "/", PATH_MAX - n);  // the folder itself
  return is_below(path);
}

static int concerns(int folder, const char *path) {
  if (how == kOff || path == NULL) return 0;
  return path[0] == '/' ? is_below(path) : folder != AT_FDCWD && concerns_number(folder);
}

static int place_of(ino_t file) {
  for (int i = 0; i < n_files; ++i)
    if (files[i].file == file) return i;
  return -1;
}

// Remembers what was done to a file: 'o' opened, 'e' opened and emptied, 'w' changed, 'f' brought to the disk.
static void remember(int number, char what) {
  struct stat about;
  if (how != kPower || fstat(number, &about) != 0 || !S_ISREG(about.st_mode)) return;
  int place = place_of(about.st_ino);
  if (place < 0) {
    if (n_files == kFiles) return;
    place = n_files++;
    files[place].file = about.st_ino;
    files[place].synced = about.st_size;
    files[place].changed = 0;
  }
  if (what == 'e' || what == 'f') files[place].synced = about.st_size;
  if (what != 'o') files[place].changed = what != 'f';
}

static int lose(const char *path, const struct stat *about, int kind, struct FTW *where) {
  (void)where;
  int place = kind == FTW_F ? place_of(about->st_ino) : -1;
  if (place < 0 || !files[place].changed || about->st_size <= files[place].synced) return 0;
  return truncate(path, files[place].synced);
}

// The power goes: names are as they were left, what was written behind the last fsync of a file is gone.
static void power_cut(void) {
  how = kOff;
  nftw(below, lose, 16, FTW_PHYS);
  kill(getpid(), SIGKILL);
}

// Counts a call; returns 0 where it goes on, 1 where it is to be torn, or fails with -1 and errno.
static int meets(char kind) {
  long k = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  if (k <= (long)sizeof kinds - 1) kinds[k - 1] = kind;
  if (how == kKill && k == at) kill(getpid(), SIGKILL);
  if (how == kPower && k == at) power_cut();
  if (how == kTear && k == at) return 1;
  if (how == kFull && k >= at && strchr("womtf", kind)) return errno = ENOSPC, -1;
  if (how == kReadOnly && k >= at && kind != 'f') return errno = EROFS, -1;
  return 0;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))
#define PASS(kind) \
  if (meets(kind) < 0) return -1

static ssize_t torn(ssize_t written) {
  (void)written;
  kill(getpid(), SIGKILL);
  return -1;
}

ssize_t write(int number, const void *from, size_t n) {
  ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t, write, int, const void *, size_t);
  if (concerns_number(number)) {
    int met = meets('w');
    if (met < 0) return -1;
    if (met) return torn(real(number, from, n / 2));
    remember(number, 'w');
  }
  return real(number, from, n);
}

ssize_t pwrite64(int number, const void *from, size_t n, off64_t where) {
  ssize_t (*real)(int, const void *, size_t, off64_t) =
      REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  if (concerns_number(number)) {
    int met = meets('w');
    if (met < 0) return -1;
    if (met) return torn(real(number, from, n / 2, where));
    remember(number, 'w');
  }
  return real(number, from, n, where);
}
ssize_t pwrite(int number, const void *from, size_t n, off_t where) { return pwrite64(number, from, n, where); }

ssize_t writev(int number, const struct iovec *parts, int n) {
  ssize_t (*real)(int, const struct iovec *, int) = REAL(ssize_t, writev, int, const struct iovec *, int);
  if (concerns_number(number)) {
    int met = meets('w');
    if (met < 0) return -1;
    if (met) return torn(real(number, parts, n / 2));
    remember(number, 'w');
  }
  return real(number, parts, n);
}

static int changes(int flags) { return (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY; }

static mode_t mode_of(int flags, va_list more) {
  return flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(more, mode_t) : 0;
}

int openat64(int folder, const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  int ours = changes(flags) && concerns(folder, path);
  if (ours) PASS('o');
  int number = REAL(int, openat64, int, const char *, int, ...)(folder, path, flags, mode);
  if (ours && number >= 0) remember(number, flags & O_TRUNC ? 'e' : 'o');
  return number;
}
int openat(int folder, const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return openat64(folder, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return openat64(AT_FDCWD, path, flags, mode);
}
int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return openat64(AT_FDCWD, path, flags, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
  if (concerns(folder, path)) PASS('m');
  return REAL(int, mkdirat, int, const char *, mode_t)(folder, path, mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int ftruncate64(int number, off64_t n) {
  if (concerns_number(number)) {
    PASS('t');
    remember(number, 'w');
  }
  return REAL(int, ftruncate64, int, off64_t)(number, n);
}
int ftruncate(int number, off_t n) { return ftruncate64(number, n); }

int fsync(int number) {
  if (concerns_number(number)) PASS('f');
  int done = REAL(int, fsync, int)(number);
  if (done == 0) remember(number, 'f');
  return done;
}
int fdatasync(int number) {
  if (concerns_number(number)) PASS('f');
  int done = REAL(int, fdatasync, int)(number);
  if (done == 0) remember(number, 'f');
  return done;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
  if (concerns(b, to)) PASS('r');
  return REAL(int, renameat2, int, const char *, int, const char *, unsigned)(a, from, b, to, flags);
}
int renameat(int a, const char *from, int b, const char *to) { return renameat2(a, from, b, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char *path, int flags) {
  if (concerns(folder, path)) PASS('u');
  return REAL(int, unlinkat, int, const char *, int)(folder, path, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
