/* SPDX-License-Identifier: MIT */
/* Threads and children of a test, and what its process holds. */
#include "common.h"

#include <dirent.h>
#include <time.h>

static unsigned int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;
	struct dirent *e;

	ASSERT_TRUE(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A joined thread stays in /proc for a moment: count until the number is stable. */
unsigned int threads_now(void)
{
	unsigned int n = count_entries("/proc/self/task"), again;

	for (int quiet = 0; quiet < 5 && n > 1; quiet++) {
		sleep_ms(1);
		again = count_entries("/proc/self/task");
		if (again < n)
			quiet = 0;
		n = again;
	}
	return n;
}

unsigned int descriptors_now(void)
{
	return count_entries("/proc/self/fd") - 1; /* the directory's own descriptor */
}

uint64_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;
	size_t n = strlen(key);
	char line[256];
	bool found = false;

	ASSERT_TRUE(f);
	while (!found && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, n) && line[n] == ':')
			found = sscanf(line + n + 1, "%llu", &kib) == 1;
	fclose(f);
	ASSERT_TRUE(found);
	return KIB(kib);
}

void thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	ASSERT_EQ(pthread_create(t, NULL, fn, arg), 0);
}

void thread_join(pthread_t t)
{
	ASSERT_EQ(pthread_join(t, NULL), 0);
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

pid_t child_start(void (*fn)(void *arg), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		fn(arg);
		/* Exit handlers of the parent are not run in the child. */
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

int child_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		ASSERT_EQ(errno, EINTR);
	return status;
}

void in_child(void (*fn)(void *arg), void *arg)
{
	int status = child_wait(child_start(fn, arg));

	if (WIFSIGNALED(status))
		FAIL("the child died of signal %d", WTERMSIG(status));
	ASSERT_EQ(WEXITSTATUS(status), 0);
}
