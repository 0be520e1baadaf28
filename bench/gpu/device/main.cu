/* SPDX-License-Identifier: MIT */
/*
 * GPU threads that read storage themselves: verified, and measured beside plain loads and copies. See bench/gpu/view.
 *
 *	view FOLDER [NAME...]     names: verify loads misses scan graph; all if none is given
 */
#include <pthread.h>
#include <sys/stat.h>

#include "bench.cuh"

#define ROWS 100
#define MAKERS 16u

static struct {
	const char *folder;
	char **names;
	int n_names;
	double begun;
	struct {
		char name[64], unit[8];
		double value, plain, goal;
		bool check;
	} row[ROWS];
	int rows;
	char path[16][512]; /* valid until as many others were asked for */
	int paths;
} b;

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int table(void)
{
	int missed = 0;

	printf("\n%-56s %10s %10s %7s %10s\n", "", "view", "plain", "ratio", "goal");
	for (int i = 0; i < b.rows; i++) {
		double v = b.row[i].value, p = b.row[i].plain, goal = b.row[i].goal;
		int ok = goal >= 0 ? v >= goal : v <= -goal;

		if (b.row[i].check) {
			printf("%-56s %s\n", b.row[i].name, v > 0 ? "WRONG" : "ok");
			missed += v > 0;
			continue;
		}
		printf("%-56s %10.3f ", b.row[i].name, v);
		if (p > 0)
			printf("%10.3f %6.2fx ", p, v / p);
		else
			printf("%10s %7s ", "", "");
		if (goal != 0)
			printf("%s%9.3f %-5s %s\n", goal > 0 ? ">" : "<", goal > 0 ? goal : -goal, b.row[i].unit,
			       ok ? "ok" : "MISSED");
		else
			printf("%10s %-5s\n", "", b.row[i].unit);
		missed += goal != 0 && !ok;
	}
	printf("%.1f s\n", now() - b.begun);
	fflush(stdout);
	return missed;
}

void quit(const char *format, ...)
{
	va_list args;

	printf("# FAILED: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	table();
	/* A kernel may still run: nothing is waited for. */
	_exit(3);
}

void phase(const char *format, ...)
{
	va_list args;

	printf("# %7.2f s ", now() - b.begun);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

void row(const char *name, double value, const char *unit, double plain, double goal)
{
	phase("%s: %.3f %s (plain %.3f)", name, value, unit, plain);
	if (b.rows == ROWS)
		return;
	snprintf(b.row[b.rows].name, sizeof(b.row[0].name), "%s", name);
	snprintf(b.row[b.rows].unit, sizeof(b.row[0].unit), "%s", unit);
	b.row[b.rows].value = value;
	b.row[b.rows].plain = plain;
	b.row[b.rows++].goal = goal;
}

void check(const char *name, uint64_t wrong)
{
	row(name, (double)wrong, "", 0, 0);
	b.row[b.rows - 1].check = true;
}

int wanted(const char *name)
{
	for (int i = 0; i < b.n_names; i++)
		if (!strcmp(b.names[i], name))
			return 1;
	return !b.n_names;
}

unsigned int multiprocessors(void)
{
	int n = 0;

	CUDA(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
	return (unsigned int)n;
}

struct maker {
	pthread_t thread;
	int fd, error;
	uint64_t from, to;
};

static void *maker_main(void *arg)
{
	struct maker *m = (struct maker *)arg;
	strait_u64 *buf = (strait_u64 *)malloc(MIB(1));

	for (uint64_t off = m->from; buf && off < m->to; off += MIB(1)) {
		uint64_t n = m->to - off < MIB(1) ? m->to - off : MIB(1);

		for (uint64_t i = 0; i < n / 8; i++)
			buf[i] = pattern(off / 8 + i);
		if (pwrite(m->fd, buf, n, (off_t)off) != (ssize_t)n) {
			m->error = errno ? errno : EIO;
			break;
		}
	}
	m->error = buf ? m->error : ENOMEM;
	free(buf);
	return NULL;
}

const char *path_of(const char *name)
{
	char *path = b.path[b.paths++ % 16];

	snprintf(path, sizeof(b.path[0]), "%s/strait-view-%s", b.folder, name);
	return path;
}

const char *file_of(const char *name, uint64_t len)
{
	struct maker maker[MAKERS];
	uint64_t part = (len / MAKERS + MIB(1)) & ~(MIB(1) - 1);
	const char *path = path_of(name);
	struct stat st;
	int fd;

	if (!stat(path, &st) && (uint64_t)st.st_size == len && !access(path, R_OK))
		return path;
	phase("making %s, %.1f GiB", path, (double)len / GIB(1));
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		quit("%s: %s", path, strerror(errno));
	for (unsigned int i = 0; i < MAKERS; i++) {
		uint64_t from = i * part < len ? i * part : len, to = from + part < len ? from + part : len;

		maker[i] = { 0, fd, 0, from, to };
		if (pthread_create(&maker[i].thread, NULL, maker_main, &maker[i]))
			quit("pthread_create");
	}
	for (unsigned int i = 0; i < MAKERS; i++) {
		pthread_join(maker[i].thread, NULL);
		if (maker[i].error) {
			unlink(path);
			quit("%s: %s", path, strerror(maker[i].error));
		}
	}
	close(fd);
	return path;
}

int main(int argc, char **argv)
{
	struct cudaDeviceProp prop;
	int missed;

	/* The first launch of a kernel that is loaded late would wait for kernels that run. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	if (argc < 2) {
		fprintf(stderr, "usage: view FOLDER [verify|loads|misses|scan|graph...]\n");
		return 2;
	}
	b.folder = argv[1];
	b.names = argv + 2;
	b.n_names = argc - 2;
	b.begun = now();
	CUDA(cudaSetDevice(0));
	CUDA(cudaGetDeviceProperties(&prop, 0));
	phase("%s, %d multiprocessors, files in %s", prop.name, prop.multiProcessorCount, b.folder);
	if (wanted("verify"))
		verify();
	if (wanted("loads"))
		loads();
	if (wanted("misses"))
		misses();
	if (wanted("scan"))
		scan();
	if (wanted("graph"))
		graph();
	missed = table();
	return missed ? 1 : 0;
}
