/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#define MARGIN 64
#define LINES 4096 /* approximate number of output lines that are kept */

uint64_t model_any(struct model_thread *t, uint64_t n)
{
	return prng_below(&t->state, n);
}

static void say_seed(const struct model_world *w)
{
	dprintf(STDERR_FILENO, "repeat with STRAIT_TEST_SEED=%llu\n", (unsigned long long)w->seed);
}

void model_say(struct model_thread *t, const char *fmt, ...)
{
	struct model_world *w = t->w;
	char line[256];
	va_list ap;
	int n;

	/* Output is kept in memory: drop old lines. */
	if (atomic_fetch_add(&w->lines, 1) % LINES == LINES - 1 && !ftruncate(STDERR_FILENO, 0)) {
		lseek(STDERR_FILENO, 0, SEEK_SET);
		say_seed(w);
	}
	n = snprintf(line, sizeof(line), "%u.%u: ", t->number, t->op);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = n > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n;
	line[n++] = '\n';
	ASSERT_EQ(write(STDERR_FILENO, line, (size_t)n), n);
}

void model_result(struct model_thread *t, const struct strait_transfer *of, const struct model_region *r,
		  const struct strait_result *res)
{
	struct model_sums *sums = &t->sums;
	uint64_t sum = 0;
	uint32_t mask = 0;

	ASSERT_EQ(res->user_data, of->user_data);
	ASSERT_EQ(res->reserved, 0);
	ASSERT_LE(res->bytes, of->length);
	for (int i = 0; i < STRAIT_ROUTES_MAX; i++) {
		if (i >= STRAIT_ROUTE_COUNT)
			ASSERT_EQ(res->route_bytes[i], 0);
		sum += res->route_bytes[i];
		mask |= res->route_bytes[i] ? STRAIT_ROUTE_MASK(i) : 0;
	}
	ASSERT_EQ(res->routes, mask);
	if (res->status)
		ASSERT_GE(sum, res->bytes);
	else
		ASSERT_EQ(sum, res->bytes);
	if (of->routes)
		ASSERT_EQ(res->routes & ~of->routes, 0);
	if (r->dev == MODEL_DEVICES - 1)
		ASSERT_EQ(res->routes & ~ROUTE(HOST), 0);
	else
		ASSERT_EQ(res->routes & ROUTE(HOST), 0);
	if (of->op == STRAIT_WRITE)
		ASSERT_EQ(res->routes & ROUTE(PAGECACHE), 0);
	sums->transfers++;
	sums->errors += res->status != 0;
	sums->canceled += res->status == -ECANCELED;
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++)
		(of->op == STRAIT_READ ? sums->read_bytes : sums->write_bytes)[i] += res->route_bytes[i];
}

/* Can the byte at @off of a file have this value? */
static bool may_be(const struct model_thread *t, const struct model_file *f, uint64_t off, unsigned char byte)
{
	if (f)
		return byte == f->now[off] || (f->raced && (byte == f->was[off] || !byte));
	for (int i = 0; i < MODEL_PATTERNS; i++)
		if (byte == t->w->pattern[i][off])
			return true;
	return !byte;
}

static uint64_t there(uint64_t file_len, uint64_t off, uint64_t len)
{
	return off < file_len ? min_u64(len, file_len - off) : 0;
}

__attribute__((no_sanitize("thread"))) static void look_at(const struct model_thread *t, const struct model_file *f,
							   const struct model_region *r, uint64_t off, uint64_t at,
							   uint64_t bytes, uint64_t most, bool reg_window)
{
	const unsigned char *have = t->scratch;

	for (uint64_t i = 0; i < most; i++) {
		if (i < bytes ? may_be(t, f, off + i, have[i]) :
				(have[i] == r->mem[at + i] || (!reg_window && may_be(t, f, off + i, have[i]))))
			continue;
		FAIL("thread %u: byte %llu of the region, from %llu of the file, %s, is 0x%02x: not 0x%02x, was 0x%02x; bytes %llu",
		     t->number, (unsigned long long)(at + i), (unsigned long long)(off + i),
		     i < bytes ? "read" : "past what was read", have[i],
		     f ? f->now[off + i] : t->w->pattern[0][off + i], r->mem[at + i], (unsigned long long)bytes);
	}
}

void model_expect_read(struct model_thread *t, const struct model_endpoint *e, struct model_region *r, uint64_t off,
		       uint64_t at, uint64_t len, uint64_t bytes, int status)
{
	const struct model_file *f = e->f;
	uint64_t least, most;
	bool exact = f && !f->raced;

	if (f) {
		least = there(f->raced ? min_u64(f->len, f->was_len) : f->len, off, len);
		most = there(f->raced ? max_u64(f->len, f->was_len) : f->len, off, len);
	} else {
		least = 0;
		most = there(t->max, off, len);
	}
	if (!status)
		ASSERT_GE(bytes, least);
	ASSERT_LE(bytes, most);
	/* Past everything that was ever in the file. */
	model_expect_region(t, r, at + most, at + len);
	ASSERT_OK(strait_region_copy_out(r->r, at, t->scratch, most));
	if (!exact || memcmp(t->scratch, f->now + off, bytes) != 0 ||
	    memcmp(t->scratch + bytes, r->mem + at + bytes, most - bytes) != 0)
		look_at(t, f, r, off, at, bytes, most, exact && !status);
	memcpy(r->mem + at, t->scratch, most);
}

void model_expect_around(struct model_thread *t, struct model_region *r, uint64_t at, uint64_t len)
{
	model_expect_region(t, r, at - min_u64(at, MARGIN), at);
	model_expect_region(t, r, at + len, min_u64(at + len + MARGIN, r->len));
}

void model_expect_region(struct model_thread *t, struct model_region *r, uint64_t from, uint64_t to)
{
	if (from >= to)
		return;
	ASSERT_OK(strait_region_copy_out(r->r, from, t->scratch, to - from));
	if (memcmp(t->scratch, r->mem + from, to - from) == 0)
		return;
	for (uint64_t i = from; i < to; i++)
		if (t->scratch[i - from] != r->mem[i])
			FAIL("thread %u: byte %llu of a region of %llu bytes is 0x%02x, should have stayed 0x%02x",
			     t->number, (unsigned long long)i, (unsigned long long)r->len, t->scratch[i - from],
			     r->mem[i]);
}

void model_put(struct model_thread *t, struct model_file *f, uint64_t off, const unsigned char *bytes, uint64_t len)
{
	ASSERT_LE(off + len, t->max);
	if (!len)
		return;
	memcpy(f->now + off, bytes, len);
	f->len = max_u64(f->len, off + len);
}

void model_cut(struct model_file *f, uint64_t len)
{
	if (len < f->len)
		memset(f->now + len, 0, f->len - len);
	f->len = len;
}

/* Reads the file without the library. */
static uint64_t file_bytes(const char *path, unsigned char *buf, uint64_t off, uint64_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t done = 0;
	ssize_t n = 1;

	ASSERT_GE(fd, 0);
	while (done < len && n > 0) {
		n = syscall(SYS_pread64, fd, buf + done, len - done, off + done);
		ASSERT_GE(n, 0);
		done += (uint64_t)n;
	}
	close(fd);
	return done;
}

void model_take_write(struct model_thread *t, const struct model_endpoint *e, const struct model_region *r,
		      uint64_t off, uint64_t at, uint64_t len, uint64_t bytes, int status)
{
	struct model_file *f = e->f;
	uint64_t got;

	if (!status)
		ASSERT_EQ(bytes, len);
	model_put(t, f, off, r->mem + at, bytes);
	if (!status || bytes == len)
		return;
	/* Past the reported bytes of a failed write, direct overwrites may have been in flight, inside the file. */
	got = file_bytes(f->path, t->scratch, off, there(f->len, off, len));
	for (uint64_t i = bytes; i < got; i++)
		if (t->scratch[i] == r->mem[at + i])
			f->now[off + i] = t->scratch[i];
}

void model_expect_write(struct model_thread *t, const struct model_endpoint *e, const struct model_region *r,
			uint64_t off, uint64_t at, uint64_t len, uint64_t bytes, int status)
{
	struct model_file *f = e->f;
	uint64_t from = off - min_u64(off, MARGIN), to = min_u64(off + len + MARGIN, t->max), got;

	model_take_write(t, e, r, off, at, len, bytes, status);
	ASSERT_EQ(file_length(f->path), f->len);
	got = file_bytes(f->path, t->scratch, from, to - from);
	ASSERT_EQ(got, there(f->len, from, to - from));
	if (memcmp(t->scratch, f->now + from, got) == 0)
		return;
	for (uint64_t i = 0; i < got; i++)
		if (t->scratch[i] != f->now[from + i])
			FAIL("thread %u: byte %llu of the file is 0x%02x after a write of %llu at %llu, not 0x%02x",
			     t->number, (unsigned long long)(from + i), t->scratch[i], (unsigned long long)len,
			     (unsigned long long)off, f->now[from + i]);
}

void model_expect_file(struct model_thread *t, struct model_file *f)
{
	ASSERT_EQ(file_length(f->path), f->len);
	ASSERT_EQ(file_bytes(f->path, t->scratch, 0, t->max), f->len);
	ASSERT_MEMEQ(t->scratch, f->now, f->len);
}

static void open_thread(struct model_thread *t, struct model_world *w)
{
	char name[64];

	t->w = w;
	t->number = atomic_fetch_add(&w->next, 1);
	t->state = w->seed * 1000003u + t->number;
	t->max = w->m->file_bytes;
	/* A region may be longer than a file. */
	t->scratch = malloc(2 * t->max);
	ASSERT_TRUE(t->scratch);
	for (int i = 0; i < MODEL_FILES; i++) {
		struct model_file *f = &t->file[i];

		snprintf(name, sizeof(name), "own%u.%d", t->number, i);
		snprintf(f->path, sizeof(f->path), "%s", test_path(name));
		f->now = calloc(1, t->max);
		f->was = calloc(1, t->max);
		ASSERT_TRUE(f->now && f->was);
		f->len = model_any(t, t->max + 1);
		prng_fill(f->now, f->len, model_any(t, 1000));
		write_at(f->path, f->now, f->len, 0);
	}
	model_open_all(t);
}

static void close_thread(struct model_thread *t)
{
	struct model_world *w = t->w;

	for (int i = 0; i < MODEL_REGIONS; i++)
		if (!t->region[i].gone)
			model_expect_region(t, &t->region[i], 0, t->region[i].len);
	model_close_all(t);
	for (int i = 0; i < MODEL_FILES; i++) {
		model_expect_file(t, &t->file[i]);
		free(t->file[i].now);
		free(t->file[i].was);
		unlink(t->file[i].path);
	}
	pthread_mutex_lock(&w->lock);
	w->sums.transfers += t->sums.transfers;
	w->sums.errors += t->sums.errors;
	w->sums.canceled += t->sums.canceled;
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		w->sums.read_bytes[i] += t->sums.read_bytes[i];
		w->sums.write_bytes[i] += t->sums.write_bytes[i];
	}
	pthread_mutex_unlock(&w->lock);
	free(t->scratch);
}

static void *work(void *arg)
{
	struct model_world *w = arg;
	struct model_thread *t = calloc(1, sizeof(*t));

	ASSERT_TRUE(t);
	open_thread(t, w);
	for (t->op = 0; t->op < w->m->rounds; t->op++)
		model_step(t);
	close_thread(t);
	free(t);
	return NULL;
}

/* The context's counters equal the sums of the results. */
static void expect_sums(struct model_world *w)
{
	const struct strait_stats s = stats_of(w->ctx);

	ASSERT_EQ(s.transfers, w->sums.transfers);
	ASSERT_EQ(s.errors, w->sums.errors);
	ASSERT_EQ(s.canceled, w->sums.canceled);
	for (int i = 0; i < STRAIT_ROUTE_COUNT; i++) {
		ASSERT_EQ(s.route[i].read_bytes, w->sums.read_bytes[i]);
		ASSERT_EQ(s.route[i].write_bytes, w->sums.write_bytes[i]);
	}
}

/* Endpoints that all threads read through. */
static void open_shared(struct model_world *w)
{
	static const uint32_t flags[MODEL_SHARED] = { 0, STRAIT_FILE_DIRECT, STRAIT_FILE_IMMUTABLE, STRAIT_FILE_LEASE };

	w->fixed.len = w->m->file_bytes - 99;
	w->fixed.now = calloc(1, w->m->file_bytes);
	ASSERT_TRUE(w->fixed.now);
	pattern(w->fixed.now, 0, w->fixed.len, 9);
	snprintf(w->fixed.path, sizeof(w->fixed.path), "%s", make_file("fixed", w->fixed.len, 9));
	for (int i = 0; i < MODEL_SHARED; i++)
		w->shared[i] = file_new(w->ctx, w->fixed.path, O_RDONLY, flags[i]);
}

static void close_shared(struct model_world *w)
{
	for (int i = 0; i < MODEL_SHARED; i++)
		strait_endpoint_close(w->shared[i]);
	free(w->fixed.now);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

void model_run(const struct model *m)
{
	struct model mine = *m;
	struct strait_context_opts opts = { .size = sizeof(opts),
					    .flags = m->context,
					    .pool_bytes = m->pool,
					    .chunk_bytes = m->chunk,
					    .pinned_budget = m->file_bytes * 3,
					    .threads = 4 };
	struct model_world w = { .m = &mine, .lock = PTHREAD_MUTEX_INITIALIZER };
	pthread_t *threads = calloc(m->threads, sizeof(*threads));
	struct timespec now;

	ASSERT_TRUE(threads);
	ASSERT_EQ(clock_gettime(CLOCK_REALTIME, &now), 0);
	w.seed = number_from("STRAIT_TEST_SEED", (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
	mine.rounds = (unsigned int)number_from("STRAIT_TEST_ROUNDS", m->rounds);
	say_seed(&w);
	setenv("STRAIT_EMU_DEVICES", "2", 1);
	w.ctx = context_new(&opts);
	w.dev[0] = device_named(w.ctx, "emu:0");
	w.dev[1] = where_emulated(NULL) ? device_named(w.ctx, "emu:1") : w.dev[0];
	w.dev[2] = device_named(w.ctx, "host");
	for (uint64_t i = 0; i < MODEL_PATTERNS; i++)
		w.pattern[i] = pattern_new(0, m->file_bytes, i + 1);
	snprintf(w.common, sizeof(w.common), "%s", make_file("common", m->file_bytes / 2, 1));
	open_shared(&w);
	for (unsigned int i = 0; i < m->threads; i++)
		thread_start(&threads[i], work, &w);
	for (unsigned int i = 0; i < m->threads; i++)
		thread_join(threads[i]);
	expect_sums(&w);
	close_shared(&w);
	ASSERT_EQ(stats_of(w.ctx).registered_bytes, 0);
	strait_context_close(w.ctx);
	ASSERT_EQ(stats_of(NULL).registered_bytes, 0);
	ASSERT_EQ(stats_of(NULL).pool_bytes, 0);
	for (int i = 0; i < MODEL_PATTERNS; i++)
		free(w.pattern[i]);
	free(threads);
}
