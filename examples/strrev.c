/* SPDX-License-Identifier: MIT */
/*
 * strrev: reverse the bytes of a file through the cuFile interface.
 *
 *	example-strrev FILE
 *
 * Reads the file with cuFileRead(), reverses it, writes it back with cuFileWrite(), reads that with a batch
 * and says whether it came back. The memory is the host's, so it runs on any machine; a program with a GPU
 * passes pointers of cudaMalloc() in the same calls and reverses with a kernel.
 */
#include <cufile.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *what, int code)
{
	fprintf(stderr, "strrev: %s: %s\n", what, IS_CUFILE_ERR(code) ? CUFILE_ERRSTR(code) : strerror(code));
	return 1;
}

static void reverse(char *text, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		char c = text[i];

		text[i] = text[n - 1 - i];
		text[n - 1 - i] = c;
	}
}

/* Reads the file again, as a batch of one. */
static int read_back(CUfileHandle_t fh, char *buf, size_t n)
{
	CUfileIOParams_t p = { .mode = CUFILE_BATCH, .u.batch = { .devPtr_base = buf, .size = n }, .fh = fh };
	CUfileBatchHandle_t batch;
	CUfileIOEvents_t event = { 0 };
	unsigned int nr = 1;
	CUfileError_t e = cuFileBatchIOSetUp(&batch, 1);

	if (e.err)
		return fail("cuFileBatchIOSetUp", e.err);
	e = cuFileBatchIOSubmit(batch, 1, &p, 0);
	if (!e.err)
		e = cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL);
	cuFileBatchIODestroy(batch);
	if (e.err)
		return fail("batch", e.err);
	return event.status == CUFILE_COMPLETE && event.ret == n ? 0 : fail("batch", EIO);
}

static int strrev(CUfileHandle_t fh, char *text, char *again, size_t n)
{
	if (cuFileRead(fh, text, n, 0, 0) != (ssize_t)n)
		return fail("cuFileRead", errno);
	reverse(text, n);
	if (cuFileWrite(fh, text, n, 0, 0) != (ssize_t)n)
		return fail("cuFileWrite", errno);
	if (read_back(fh, again, n))
		return 1;
	if (memcmp(text, again, n))
		return fail("the file", EIO);
	printf("%zu bytes reversed\n", n);
	return 0;
}

int main(int argc, char **argv)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	CUfileHandle_t fh;
	CUfileError_t e;
	struct stat st;
	char *text, *again;
	int rc = 1;

	if (argc != 2) {
		fprintf(stderr, "usage: strrev FILE\n");
		return 2;
	}
	d.handle.fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (d.handle.fd < 0 || fstat(d.handle.fd, &st))
		return fail(argv[1], errno);
	text = malloc((size_t)st.st_size + 1);
	again = malloc((size_t)st.st_size + 1);
	e = cuFileHandleRegister(&fh, &d);
	if (e.err) {
		fail("cuFileHandleRegister", e.err);
		goto free_memory;
	}
	if (text && again)
		rc = strrev(fh, text, again, (size_t)st.st_size);
	cuFileHandleDeregister(fh);
	cuFileDriverClose();
free_memory:
	free(text);
	free(again);
	close(d.handle.fd);
	return rc;
}
