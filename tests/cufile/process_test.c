/* SPDX-License-Identifier: MIT */
/* Forked children, and a process killed in a batch. */
#include "cufile/common.h"

#include <signal.h>
#include <sys/mman.h>

static const struct kind emu = { "emu", true, true };
static CUfileHandle_t fh;
static struct buffer b;

/* Inherited objects are not registered here, and the child may open the driver anew. */
static void child(void *arg)
{
	unsigned char *want = pattern_new(0, 8192, 1);
	static const struct kind host = { "host", false, true };
	struct buffer own;
	CUfileHandle_t mine;
	int fd;

	errno = 0;
	ASSERT_EQ(cuFileRead(fh, want, 10, 0, 0), -1);
	ASSERT_EQ(errno, CU_FILE_HANDLE_NOT_REGISTERED);
	cuFileHandleDeregister(fh);
	ASSERT_CU_ERR(cuFileBufDeregister(b.ptr), CU_FILE_MEMORY_NOT_REGISTERED);
	ASSERT_EQ(cuFileUseCount(), 0);
	own = buffer_new(&host, 8192);
	mine = handle_new(test_path("file"), O_RDONLY, &fd);
	ASSERT_EQ(cuFileRead(mine, own.ptr, 8192, 0, 0), 8192);
	buffer_expect(&own, 0, want, 8192);
	handle_free(mine, fd);
	buffer_free(&own);
	ASSERT_CU(cuFileDriverClose());
	free(want);
}

TEST(forked_children)
{
	int fd;

	b = buffer_new(&emu, 8192);
	fh = handle_new(make_file("file", 8192, 1), O_RDONLY, &fd);
	ASSERT_EQ(cuFileRead(fh, b.ptr, 8192, 0, 0), 8192);
	in_child(child, NULL);
	ASSERT_EQ(cuFileRead(fh, b.ptr, 8192, 0, 0), 8192);
	handle_free(fh, fd);
	buffer_free(&b);
}

static atomic_bool over;

static void *set_parameters(void *arg)
{
	while (!atomic_load(&over))
		ASSERT_CU(cuFileSetParameterSizeT(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, 8));
	return arg;
}

static void open_and_close(void *arg)
{
	ASSERT_CU(cuFileDriverOpen());
	ASSERT_CU(cuFileDriverClose());
}

/* Parameters are set before the driver is opened for the first time, and a child is forked meanwhile. */
TEST(forked_while_a_thread_sets_parameters)
{
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		thread_start(&thread[i], set_parameters, NULL);
	for (int i = 0; i < 50; i++)
		in_child(open_and_close, NULL);
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		thread_join(thread[i]);
}

/* Shared with the child: how many batches it has submitted. */
static atomic_uint *batches;

static void in_batches(void *arg)
{
	CUfileIOParams_t p[64];
	CUfileIOEvents_t ev[64];
	CUfileBatchHandle_t batch;
	int fd;

	b = buffer_new(&emu, MIB(4));
	fh = handle_new(test_path("file"), O_RDWR, &fd);
	ASSERT_CU(cuFileBatchIOSetUp(&batch, 64));
	for (unsigned int i = 0; i < 64; i++)
		p[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					   .u.batch = { b.ptr, (off_t)(i * 65536), (off_t)(i * 65536), 65536 },
					   .fh = fh,
					   .opcode = i % 2 ? CUFILE_READ : CUFILE_WRITE };
	for (;;) {
		unsigned int nr = 64;

		ASSERT_CU(cuFileBatchIOSubmit(batch, 64, p, 0));
		atomic_fetch_add(batches, 1);
		ASSERT_CU(cuFileBatchIOGetStatus(batch, 64, &nr, ev, NULL));
		ASSERT_EQ(nr, 64);
	}
}

TEST(killed_in_a_batch)
{
	make_file("file", MIB(4), 2);
	batches = mmap(NULL, sizeof(*batches), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(batches, MAP_FAILED);
	for (unsigned int i = 0; i < 5; i++) {
		pid_t pid;
		int status;

		atomic_store(batches, 0);
		pid = child_start(in_batches, NULL);
		/* During one of them. */
		while (atomic_load(batches) < 2 + i) {
			ASSERT_EQ(waitpid(pid, &status, WNOHANG), 0);
			usleep(100 + 37 * i);
		}
		kill(pid, SIGKILL);
		status = child_wait(pid);
		ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	ASSERT_EQ(file_length(test_path("file")), MIB(4));
}
