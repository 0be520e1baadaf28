/* SPDX-License-Identifier: MIT */
#ifndef MODEL_NVME_MODEL_H
#define MODEL_NVME_MODEL_H

/*
 * An NVMe controller in software behind the interface of pci/pci.h. It reads commands by the specification and shares
 * no code with the driver. It works inside the doorbell write or, with @threaded, on a thread of its own.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bus.h"
#include "pci/pci.h"

#define MODEL_QUEUES 9
#define MODEL_NAMESPACES 3
#define MODEL_HELD 64

/* The fault, beginning with the I/O command number @fault_at (0 is the next), @fault_count times. */
enum model_fault {
	MODEL_GOOD,
	MODEL_FATAL,	 /* fatal status, no answer */
	MODEL_LOSE,	 /* the command is carried out and no completion is written */
	MODEL_HOLD,	 /* not carried out until it is aborted */
	MODEL_STALL,	 /* no command is carried out until a reset */
	MODEL_BAD_CID,	 /* the completion of a command that is not outstanding */
	MODEL_BAD_PHASE, /* a completion with the wrong phase */
	MODEL_BAD_SQHD,	 /* the head of the queue is past its end */
	MODEL_BAD_SQID,	 /* another queue's */
	MODEL_TWICE,	 /* two completions of one command */
	MODEL_STATUS,	 /* @status */
	MODEL_GARBAGE,	 /* random bits in all of the completion but the phase */
	MODEL_GONE,	 /* registers read as ones, nothing is carried out */
};

struct model_config {
	uint32_t namespaces; /* 1 */
	uint32_t lba;	     /* 512 */
	uint32_t lba2;	     /* of the second namespace; 0: the same */
	uint64_t blocks;     /* 16384 */
	uint32_t metadata;
	uint32_t protection;
	uint32_t mdts;	  /* 0: no limit */
	uint32_t entries; /* of a queue, 1024 */
	uint32_t queues;  /* 4 */
	uint32_t sgls;	  /* 0 none, 1 any alignment, 2 dwords */
	uint32_t vectors;
	bool no_cache, dbbuf, threaded, scattered, old, no_zeroes, refuse_regions;
	bool lose_peer_writes; /* its writes to device memory are lost, and it reports success */
};

struct model_queue {
	bool sq_there, cq_there, irq, rung; /* rung: a doorbell was written, from then on the shadow is polled */
	uint64_t sq_bus, cq_bus;
	uint32_t sq_size, cq_size;
	uint32_t head, tail; /* of the submission queue */
	uint32_t cq_tail, cq_head;
	uint32_t phase;
	uint16_t vector, cqid;
};

struct model_held {
	uint16_t sqid, cid;
};

struct nvme_model {
	struct pci_device pci; /* what the driver gets */
	struct model_config c;
	struct bus bus;
	pthread_mutex_t lock;
	pthread_t thread;
	bool stop;
	uint64_t asq, acq, shadow, events;
	uint32_t cc, csts, aqa;
	struct model_queue q[MODEL_QUEUES];
	uint8_t *disk[MODEL_NAMESPACES];
	uint64_t blocks[MODEL_NAMESPACES];
	int irq[8];
	uint16_t aer[8];
	uint32_t n_aer;
	struct model_held held[MODEL_HELD];
	uint32_t n_held;
	enum model_fault fault;
	uint64_t fault_at, fault_count;
	uint16_t status;
	uint8_t refused; /* admin commands with this opcode get @refusal, unless that is 0 */
	uint16_t refusal;
	bool stalled;	 /* until it is reset */
	bool never_idle; /* CSTS.RDY stays */
	bool reset_works;
	bool is_open, master, shut_down;
	uint64_t seed;
	uint64_t io, admin, doorbells, resets, aborts, flushes, prp_lists, sgls, fua, max_seen;
	uint64_t revoked; /* mapping_check() says so */
	/* Called for each I/O command: true if it was handled. May be NULL. */
	bool (*hook)(struct nvme_model *m, uint16_t sqid, const uint8_t *sqe);
	/* Called for each page of Identify and each result of an admin command. May be NULL. */
	void (*mutate)(struct nvme_model *m, uint8_t *page, size_t len);
};

struct nvme_model *model_new(const struct model_config *c);
/* After the driver closed it. */
void model_free(struct nvme_model *m);
void model_break(struct nvme_model *m, enum model_fault fault, uint64_t at, uint64_t count);
/* Reports an event; false if no request for one is outstanding. */
bool model_event(struct nvme_model *m, uint32_t result);
void model_resize(struct nvme_model *m, uint32_t nsid, uint64_t blocks);

/* Shared by the two files of the model: 0 or a status. */
uint16_t model_admin(struct nvme_model *m, const uint8_t *sqe, uint32_t *result, bool *later);
uint16_t model_io(struct nvme_model *m, const uint8_t *sqe);
uint64_t model_random(struct nvme_model *m);
/* Writes an entry of a completion queue as it is; only the phase is set. */
void model_entry(struct nvme_model *m, uint32_t cqid, uint32_t dw0, uint32_t dw2, uint32_t dw3);
void model_complete(struct nvme_model *m, uint16_t sqid, uint16_t cid, uint16_t status, uint32_t result);

#endif
