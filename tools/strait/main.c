/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/types.h>

#include "lib/cli.h"

const struct verb verbs[] = {
	{ "info", "[--all] [--cufile] [--json]", cmd_info,
	  "Show devices, drives, file systems and PCIe topology, and what Strait can do with them", NULL },
	{ "explain", "PATH DEVICE [--write] [--json]", cmd_explain,
	  "Show which route a file takes to a device, and why no faster one", NULL },
	{ "load", "FILE [--device D] [options]", cmd_load, "Load a file into device memory",
	  "The time printed is that of the transfers. The CRC-32C of the bytes in device memory is computed after each\n"
	  "transfer, and the file is read again for --verify after all of them: neither is in that time." },
	{ "save", "FILE --size S | --from FILE2 [options]", cmd_save, "Save device memory to a file",
	  "The time printed is that of the writes. Filling device memory, its CRC-32C and the sync to storage are not in\n"
	  "it; the sync is printed beside it." },
	{ "verify", "DIR|FILE [--size S] [--seed N] [options]", cmd_verify,
	  "Write a pattern from device memory to a file, read it back through every interface, compare",
	  "The rates printed are those of the transfers; comparing is not in them." },
	{ "bench", "file PATH [options]", cmd_bench, "Measure throughput, latency and CPU time of file transfers",
	  "Writes count when they are in the file, not when they are on storage. No checksum is computed." },
	{ "run", "[options] [--] PROGRAM [ARGUMENT...]", cmd_run,
	  "Run a program with Strait's libcufile in place of any other", NULL },
	{ "nvme", "list | identify | read | write | verify | bench | log [DRIVE] [options]", cmd_nvme,
	  "Drive an NVMe drive from user space, with DMA to and from device memory", NULL },
	{ "dma", "list | h2c2h | bench [CARD] [options]", cmd_dma,
	  "Transfer between device memories through the DMA engine of a PCIe card", NULL },
	{ "rdma", "list | serve [DIR] | pull ADDRESS FILE | push ADDRESS FILE | bench [ADDRESS] [options]", cmd_rdma,
	  "Transfer between files of one machine and device memory of another, by RDMA",
	  "WHAT of --export, with \",write\" if clients may overwrite it, and @NAME as the client's FILE:\n"
	  "  /dev/nvme0n1, /data/file    a block device or a file\n"
	  "  nvme:0000:01:00.0[,ns=N]    a drive that is bound for user space: strait bind\n"
	  "  cuda:0,size=SIZE            memory of a device, zeros at first\n"
	  "  cuda:0,from=FILE            memory of a device with the bytes of a file\n\n"
	  "The time printed is that of the transfers. The CRC-32C of the bytes in device memory is not in it." },
	{ "bind", "BDF [--driver D] [--owner USER[:GROUP]] [--force BDF] | --status [--json]", cmd_bind,
	  "Bind a PCI device to strait or vfio-pci, to drive it from user space", NULL },
	{ "unbind", "BDF [--force BDF]", cmd_unbind, "Give a PCI device back to its previous driver", NULL },
	{ "lab", "run [PATTERN] | shell [options]", cmd_lab, "Run the tests, or a shell, in emulated machines", NULL },
	{ "help", "[VERB]", cmd_help, "List the verbs, or the arguments and options of one", NULL },
	{ 0 },
};

const struct verb *verb_find(const char *name)
{
	for (const struct verb *v = verbs; v->name; v++)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

/* Output that cannot be written is a failure; a reader that closed the pipe early is not. */
static int finish(int code)
{
	int err = 0;

	if (fflush(stdout) || ferror(stdout))
		err = errno;
	if (err && err != EPIPE) {
		fprintf(stderr, "strait: cannot write to standard output: %s\n", strerror(err));
		return code ? code : CLI_FAILED;
	}
	return code;
}

int main(int argc, char **argv)
{
	const struct verb *verb;
	const char *name;

	signals_setup();
	if (argc < 2) {
		fputs("usage: strait VERB ...\n  see: strait help\n", stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("strait %s\n", strait_version());
		return finish(CLI_OK);
	}
	name = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ? "help" : argv[1];
	verb = verb_find(name);
	if (!verb)
		return fail(CLI_USAGE, "see: strait help", "unknown verb \"%s\"", name);
	cli.verb = verb->name;
	/* Looked for before the options are parsed, so that a parse error is reported as JSON too. */
	for (int i = 2; verb->run != cmd_run && i < argc && strcmp(argv[i], "--"); i++)
		cli.json |= !strcmp(argv[i], "--json");
	return finish(verb->run(argc - 1, argv + 1));
}
