/* SPDX-License-Identifier: MIT */
/*
 * graph: threads of a device search a graph in a file that is larger than their frames.
 *
 *	example-graph make --scale N FILE				a Kronecker graph of 2^N vertices, 16 edges for each
 *	example-graph bfs [--device emu:0|host] [--budget MIB] [--from V] FILE	vertices that are reached, and in how many steps
 *	example-graph cc [--device emu:0|host] [--budget MIB] FILE	connected components
 *
 * The graph is that of the GAP Benchmark Suite's generator: the same random numbers, so the number of components can be
 * compared, e.g. 71,164,263 at scale 27. Labels of vertices are in memory; edges are read on demand, through frames. Both
 * results are checked against a search of the file by the CPU alone.
 */
#include "view_threads.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEGREE 16u
#define BLOCK (1u << 18) /* edges for which the generator is seeded anew */
#define SEED 27491095u
#define MAGIC 0x70617267u

/* The file: this, offsets of the neighbours of each vertex, and one past them all, and the neighbours. */
struct header {
	uint64_t magic, vertices, neighbours;
};

/* ---- the generator: MT19937, and a float of each number ---- */

struct twister {
	uint32_t state[624];
	unsigned int at;
};

static void twister_seed(struct twister *t, uint32_t seed)
{
	t->state[0] = seed;
	for (uint32_t i = 1; i < 624; i++)
		t->state[i] = 1812433253u * (t->state[i - 1] ^ t->state[i - 1] >> 30) + i;
	t->at = 624;
}

static uint32_t twister_next(struct twister *t)
{
	uint32_t y;

	if (t->at == 624) {
		for (unsigned int i = 0; i < 624; i++) {
			y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);
			t->state[i] = t->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
		}
		t->at = 0;
	}
	y = t->state[t->at++];
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680u;
	y ^= y << 15 & 0xefc60000u;
	return y ^ y >> 18;
}

static void edge_next(struct twister *t, unsigned int scale, uint32_t *from, uint32_t *to)
{
	const float a = 0.57f, b = 0.19f, c = 0.19f;

	*from = *to = 0;
	for (unsigned int i = 0; i < scale; i++) {
		float x = (float)twister_next(t) / 4294967296.0f;

		*from <<= 1;
		*to <<= 1;
		if (x < a + b) {
			*to += x > a;
		} else {
			*from += 1;
			*to += x > a + b + c;
		}
	}
}

/* Counts, in the first pass, or stores the neighbours of each vertex. */
static void edges_pass(unsigned int scale, uint64_t *next, uint32_t *neighbours)
{
	uint64_t n = (uint64_t)DEGREE << scale;
	struct twister t;
	uint32_t from, to;

	for (uint64_t i = 0; i < n; i++) {
		if (i % BLOCK == 0)
			twister_seed(&t, (uint32_t)(SEED + i / BLOCK));
		edge_next(&t, scale, &from, &to);
		if (neighbours) {
			neighbours[next[from]] = to;
			neighbours[next[to]] = from;
		}
		next[from]++;
		next[to]++;
	}
}

static int make(const char *path, unsigned int scale)
{
	uint64_t vertices = 1ull << scale, n = 2 * ((uint64_t)DEGREE << scale), sum = 0;
	struct header h = { MAGIC, vertices, n };
	uint64_t *offset = calloc(vertices + 1, 8), *next = calloc(vertices, 8);
	uint32_t *neighbours = calloc(n, 4);
	FILE *file = fopen(path, "w");
	int rc = !offset || !next || !neighbours ? ENOMEM : !file ? errno : 0;

	if (!rc) {
		edges_pass(scale, next, NULL);
		for (uint64_t v = 0; v < vertices; v++) {
			offset[v] = sum;
			sum += next[v];
			next[v] = offset[v];
		}
		offset[vertices] = sum;
		edges_pass(scale, next, neighbours);
		if (fwrite(&h, sizeof(h), 1, file) != 1 || fwrite(offset, 8, vertices + 1, file) != vertices + 1 ||
		    fwrite(neighbours, 4, n, file) != n)
			rc = EIO;
	}
	if (file && fclose(file) && !rc)
		rc = errno;
	free(offset);
	free(next);
	free(neighbours);
	return rc ? fail("graph", path, rc) : 0;
}

/* ---- kernels ---- */

struct search {
	uint64_t vertices, offsets, neighbours; /* the latter two: where they are in the file */
	uint32_t *label;
	uint32_t level;
	bool changed;
};

static uint32_t label_get(const uint32_t *label, uint64_t v)
{
	return __atomic_load_n(&label[v], __ATOMIC_RELAXED);
}

/* Lowers a label. Did it change? */
static bool label_lower(uint32_t *label, uint64_t v, uint32_t to)
{
	uint32_t has = label_get(label, v);

	while (to < has)
		if (__atomic_compare_exchange_n(&label[v], &has, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* One level of a breadth-first search: the neighbours of vertices of that level. */
static int bfs_level(struct launch *l, uint64_t thread, uint64_t threads)
{
	struct strait_cursor offsets = STRAIT_CURSOR_INIT, edges = STRAIT_CURSOR_INIT;
	struct search *s = l->arg;
	bool changed = false;

	for (uint64_t v = thread; v < s->vertices; v += threads) {
		uint64_t i, end;

		if (label_get(s->label, v) != s->level)
			continue;
		i = strait_load_u64(&l->view, &offsets, s->offsets + v * 8);
		end = strait_load_u64(&l->view, &offsets, s->offsets + (v + 1) * 8);
		for (; i < end; i++)
			changed |= label_lower(s->label, strait_load_u32(&l->view, &edges, s->neighbours + i * 4),
					       s->level + 1);
	}
	if (changed)
		__atomic_store_n(&s->changed, true, __ATOMIC_RELAXED);
	return offsets.error ? offsets.error : edges.error;
}

/* One round of connected components: both ends of an edge get the lower label. */
static int cc_round(struct launch *l, uint64_t thread, uint64_t threads)
{
	struct strait_cursor offsets = STRAIT_CURSOR_INIT, edges = STRAIT_CURSOR_INIT;
	struct search *s = l->arg;
	bool changed = false;

	for (uint64_t v = thread; v < s->vertices; v += threads) {
		uint64_t i = strait_load_u64(&l->view, &offsets, s->offsets + v * 8);
		uint64_t end = strait_load_u64(&l->view, &offsets, s->offsets + (v + 1) * 8);

		for (; i < end; i++) {
			uint32_t w = strait_load_u32(&l->view, &edges, s->neighbours + i * 4);

			changed |= label_lower(s->label, w, label_get(s->label, v));
			changed |= label_lower(s->label, v, label_get(s->label, w));
		}
		/* Follow the labels, which are vertices of the same component. */
		while (label_lower(s->label, v, label_get(s->label, label_get(s->label, v))))
			changed = true;
	}
	if (changed)
		__atomic_store_n(&s->changed, true, __ATOMIC_RELAXED);
	return offsets.error ? offsets.error : edges.error;
}

static uint64_t roots(const struct search *s)
{
	uint64_t n = 0;

	for (uint64_t v = 0; v < s->vertices; v++)
		n += s->label[v] == v;
	return n;
}

static uint64_t reached(const struct search *s)
{
	uint64_t n = 0;

	for (uint64_t v = 0; v < s->vertices; v++)
		n += s->label[v] != UINT32_MAX;
	return n;
}

/* ---- the same by the CPU alone ---- */

static void reference(const struct search *s, const char *file, bool cc, uint32_t *label)
{
	const uint64_t *offset = (const void *)(file + s->offsets);
	const uint32_t *neighbours = (const void *)(file + s->neighbours);
	bool changed = true;

	for (uint32_t level = 0; changed; level++) {
		changed = false;
		for (uint64_t v = 0; v < s->vertices; v++) {
			if (!cc && label[v] != level)
				continue;
			for (uint64_t i = offset[v]; i < offset[v + 1]; i++) {
				uint32_t w = neighbours[i], to = cc ? label[v] : level + 1;

				changed |= to < label[w];
				label[w] = to < label[w] ? to : label[w];
			}
		}
	}
}

static int check(const struct search *s, const char *path, bool cc, uint32_t *label)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC), wrong;
	void *file;

	if (fd < 0 || fstat(fd, &st))
		return fail("graph", path, errno);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return fail("graph", path, errno);
	reference(s, file, cc, label);
	munmap(file, (size_t)st.st_size);
	wrong = memcmp(label, s->label, s->vertices * sizeof(*label)) != 0;
	if (wrong)
		fprintf(stderr, "graph: the labels differ from those of the CPU\n");
	return wrong;
}

static int read_header(const char *path, struct search *s)
{
	struct header h = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != MAGIC || h.vertices > UINT32_MAX) {
		close(fd);
		return -EINVAL;
	}
	close(fd);
	s->vertices = h.vertices;
	s->offsets = sizeof(h);
	s->neighbours = sizeof(h) + (h.vertices + 1) * 8;
	return 0;
}

static int search(int argc, char **argv, const char *path, bool cc)
{
	struct strait_frames_info info = { .size = sizeof(info) };
	uint64_t from = option(argc, argv, "from", 0);
	struct search s = { .changed = true };
	uint32_t *label, rounds = 0;
	struct paged p;
	int rc;

	rc = read_header(path, &s);
	if (!rc)
		rc = paged_open(&p, option_text(argc, argv, "device", "emu:0"), path, 0, 0,
				option(argc, argv, "budget", 16) << 20);
	if (rc)
		return fail("graph", path, rc);
	s.label = malloc(s.vertices * sizeof(*s.label));
	label = malloc(s.vertices * sizeof(*label));
	if (!s.label || !label || from >= s.vertices)
		return fail("graph", path, EINVAL);
	for (uint64_t v = 0; v < s.vertices; v++)
		s.label[v] = label[v] = cc ? (uint32_t)v : v == from ? 0 : UINT32_MAX;
	for (; s.changed && !rc; rounds++) {
		s.changed = false;
		s.level = rounds;
		rc = paged_launch(&p, STRAIT_INTENT_READ, cc ? cc_round : bfs_level, &s);
	}
	if (!rc)
		rc = strait_frames_info(p.frames, &info);
	if (rc)
		return fail("graph", path, rc);
	if (cc)
		printf("%llu components", (unsigned long long)roots(&s));
	else
		printf("%llu vertices reached", (unsigned long long)reached(&s));
	printf(" of %llu vertices in %u rounds, %llu granules read, %llu frames evicted\n",
	       (unsigned long long)s.vertices, rounds, (unsigned long long)(info.pulled + info.fetched),
	       (unsigned long long)info.evictions);
	paged_close(&p);
	rc = check(&s, path, cc, label);
	free(s.label);
	free(label);
	return rc;
}

int main(int argc, char **argv)
{
	const char *path = argc > 2 ? operand(argc - 1, argv + 1) : NULL;

	if (path && !strcmp(argv[1], "make"))
		return make(path, (unsigned int)option(argc, argv, "scale", 16));
	if (path && (!strcmp(argv[1], "bfs") || !strcmp(argv[1], "cc")))
		return search(argc, argv, path, !strcmp(argv[1], "cc"));
	fprintf(stderr, "usage: graph make --scale N FILE | graph bfs|cc [--device DEVICE] [--budget MIB] FILE\n");
	return 2;
}
