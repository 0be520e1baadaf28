/* SPDX-License-Identifier: MIT */
#ifndef HW_NVME_H
#define HW_NVME_H

/* Definitions of the NVM Express specification: registers, commands, completions, identify data. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hw/endian.h"

/* Registers, in BAR 0. */
enum {
	NVME_CAP = 0x00, /* 64 bits */
	NVME_VS = 0x08,
	NVME_CC = 0x14,
	NVME_CSTS = 0x1c,
	NVME_AQA = 0x24,
	NVME_ASQ = 0x28, /* 64 bits */
	NVME_ACQ = 0x30, /* 64 bits */
	NVME_DOORBELLS = 0x1000,
};

#define NVME_CAP_MQES(cap) ((uint32_t)((cap)&0xffff) + 1) /* most entries of a queue */
#define NVME_CAP_CQR(cap) ((bool)((cap) >> 16 & 1))	  /* queues must be contiguous */
#define NVME_CAP_TO(cap) ((uint32_t)((cap) >> 24 & 0xff)) /* in units of 500 ms */
#define NVME_CAP_DSTRD(cap) ((uint32_t)((cap) >> 32 & 0xf))
#define NVME_CAP_NVM(cap) ((bool)((cap) >> 37 & 1))
#define NVME_CAP_MPSMIN(cap) ((uint32_t)((cap) >> 48 & 0xf))

#define NVME_CC_EN 1u
#define NVME_CC_MPS(shift) (((uint32_t)(shift)-12) << 7)
#define NVME_CC_SHN_MASK (3u << 14)
#define NVME_CC_SHN_NORMAL (1u << 14)
#define NVME_CC_IOSQES (6u << 16)
#define NVME_CC_IOCQES (4u << 20)

#define NVME_CSTS_RDY 1u
#define NVME_CSTS_CFS 2u
#define NVME_CSTS_SHST(csts) ((csts) >> 2 & 3)
#define NVME_SHST_DONE 2u
#define NVME_GONE 0xffffffffu /* what the registers of a removed device read as */

enum nvme_admin {
	NVME_ADMIN_DELETE_SQ = 0x00,
	NVME_ADMIN_CREATE_SQ = 0x01,
	NVME_ADMIN_LOG_PAGE = 0x02,
	NVME_ADMIN_DELETE_CQ = 0x04,
	NVME_ADMIN_CREATE_CQ = 0x05,
	NVME_ADMIN_IDENTIFY = 0x06,
	NVME_ADMIN_ABORT = 0x08,
	NVME_ADMIN_SET_FEATURES = 0x09,
	NVME_ADMIN_GET_FEATURES = 0x0a,
	NVME_ADMIN_ASYNC_EVENT = 0x0c,
	NVME_ADMIN_DBBUF = 0x7c,
};

enum nvme_opcode {
	NVME_FLUSH = 0x00,
	NVME_WRITE = 0x01,
	NVME_READ = 0x02,
	NVME_WRITE_ZEROES = 0x08,
	NVME_DATASET = 0x09,
};

#define NVME_RW_FUA (1u << 30)	     /* of dword 12 */
#define NVME_WZ_DEAC (1u << 25)	     /* of dword 12: deallocate the blocks */
#define NVME_DATASET_DEALLOCATE (4u) /* of dword 11 */
#define NVME_QUEUE_CONTIGUOUS (1u)   /* of dword 11 */
#define NVME_QUEUE_INTERRUPTS (2u)   /* of dword 11 of a completion queue */
#define NVME_SGL_IN_SQE (1u << 6)    /* PSDT in the first dword's byte 1 */
#define NVME_PRP_ENTRY sizeof(uint64_t)
#define NVME_SGL_ENTRY 16u
#define NVME_SGL_DATA 0x00u
#define NVME_SGL_LAST_SEGMENT 0x30u

enum {
	NVME_FEAT_VOLATILE_CACHE = 0x06,
	NVME_FEAT_QUEUES = 0x07,
	NVME_FEAT_ASYNC = 0x0b,
	NVME_ASYNC_HEALTH = 0x1f,
	NVME_ASYNC_NAMESPACES = 1 << 8,

	NVME_ID_NAMESPACE = 0,
	NVME_ID_CONTROLLER = 1,
	NVME_ID_NAMESPACES = 2, /* list of active namespaces, 1024 per page */

	NVME_LOG_ERRORS = 1,
	NVME_LOG_HEALTH = 2,
	NVME_LOG_FIRMWARE = 3,
	NVME_LOG_CHANGED_NAMESPACES = 4,

	NVME_EVENT_ERROR = 0,
	NVME_EVENT_HEALTH = 1,
	NVME_EVENT_NOTICE = 2,
	NVME_NOTICE_NAMESPACES = 0,
};

/* Offsets in the Identify Controller data. */
enum {
	NVME_CTRL_VENDOR = 0,
	NVME_CTRL_SERIAL = 4,
	NVME_CTRL_MODEL = 24,
	NVME_CTRL_FIRMWARE = 64,
	NVME_CTRL_MDTS = 77,
	NVME_CTRL_ID = 78,
	NVME_CTRL_VERSION = 80,
	NVME_CTRL_OAES = 92,
	NVME_CTRL_OACS = 256,
	NVME_CTRL_ACL = 258,
	NVME_CTRL_AERL = 259,
	NVME_CTRL_SQES = 512,
	NVME_CTRL_CQES = 513,
	NVME_CTRL_NN = 516,
	NVME_CTRL_ONCS = 520,
	NVME_CTRL_VWC = 525,
	NVME_CTRL_SGLS = 536,
	NVME_CTRL_SUBNQN = 768,

	NVME_OACS_DBBUF = 1 << 8,
	NVME_ONCS_DATASET = 1 << 2,
	NVME_ONCS_WRITE_ZEROES = 1 << 3,
};

/* Offsets in the Identify Namespace data. */
enum {
	NVME_NS_SIZE = 0,
	NVME_NS_CAPACITY = 8,
	NVME_NS_UTILIZATION = 16,
	NVME_NS_FEATURES = 24,
	NVME_NS_FORMATS = 25,
	NVME_NS_FORMAT = 26,
	NVME_NS_PROTECTION = 29,
	NVME_NS_LBAF = 128,
};

struct nvme_sqe {
	hw_le32 dw0; /* opcode, flags, command identifier */
	hw_le32 nsid;
	hw_le32 dw2, dw3;
	hw_le64 metadata;
	hw_le64 data[2]; /* PRP entries, or one SGL descriptor */
	hw_le32 dw10, dw11, dw12, dw13, dw14, dw15;
};

struct nvme_cqe {
	uint32_t result; /* all four words are little-endian and read by hw_load() */
	uint32_t reserved;
	uint32_t sq;   /* head, identifier */
	uint32_t last; /* command identifier, phase, status */
};

_Static_assert(sizeof(struct nvme_sqe) == 64, "");
_Static_assert(sizeof(struct nvme_cqe) == 16, "");

/*
 * Status: code in bits 0 to 7, type in 8 to 10, "more" in 13, "do not retry" in 14. The phase bit is
 * not in it.
 */
#define NVME_SC(status) ((status)&0xff)
#define NVME_SCT(status) ((status) >> 8 & 7)
#define NVME_CODE(status) ((status)&0x7ff)
#define NVME_MORE (1u << 13)
#define NVME_DNR (1u << 14)

enum {
	NVME_SC_INVALID_OPCODE = 0x001,
	NVME_SC_INVALID_FIELD = 0x002,
	NVME_SC_ABORT_REQUESTED = 0x007,
	NVME_SC_ABORT_SQ_DELETED = 0x008,
	NVME_SC_INVALID_NS = 0x00b,
	NVME_SC_WRITE_PROTECTED = 0x020,
	NVME_SC_INTERRUPTED = 0x021,
	NVME_SC_TRANSIENT = 0x022,
	NVME_SC_LBA_RANGE = 0x080,
	NVME_SC_CAPACITY = 0x081,
	NVME_SC_NOT_READY = 0x082,
	NVME_SC_ACCESS_DENIED = 0x286,
	NVME_SC_BY_HOST = 0x371,
};

/* "Unrecovered Read Error"; the name of the status code type for an unknown code. Never NULL. */
const char *nvme_status_name(uint32_t status);
/* The status as a negative errno; 0 for success. */
int nvme_status_errno(uint32_t status);

#endif
