/* SPDX-License-Identifier: MIT */
#include <errno.h>

#include "base/util.h"
#include "hw/nvme.h"

static const struct status {
	uint16_t code; /* type and code */
	uint16_t err;
	const char *name;
} table[] = {
	{ 0x000, 0, "Success" },
	{ 0x001, EOPNOTSUPP, "Invalid Command Opcode" },
	{ 0x002, EINVAL, "Invalid Field in Command" },
	{ 0x003, EIO, "Command ID Conflict" },
	{ 0x004, EIO, "Data Transfer Error" },
	{ 0x005, EIO, "Aborted due to Power Loss Notification" },
	{ 0x006, EIO, "Internal Error" },
	{ 0x007, ECANCELED, "Command Abort Requested" },
	{ 0x008, ECANCELED, "Aborted due to SQ Deletion" },
	{ 0x009, EIO, "Aborted due to Failed Fused Command" },
	{ 0x00a, EIO, "Aborted due to Missing Fused Command" },
	{ 0x00b, ENODEV, "Invalid Namespace or Format" },
	{ 0x00c, EINVAL, "Command Sequence Error" },
	{ 0x00d, EINVAL, "Invalid SGL Segment Descriptor" },
	{ 0x00e, EINVAL, "Invalid Number of SGL Descriptors" },
	{ 0x00f, EINVAL, "Data SGL Length Invalid" },
	{ 0x010, EINVAL, "Metadata SGL Length Invalid" },
	{ 0x011, EINVAL, "SGL Descriptor Type Invalid" },
	{ 0x012, EINVAL, "Invalid Use of Controller Memory Buffer" },
	{ 0x013, EINVAL, "PRP Offset Invalid" },
	{ 0x014, EINVAL, "Atomic Write Unit Exceeded" },
	{ 0x015, EACCES, "Operation Denied" },
	{ 0x016, EINVAL, "SGL Offset Invalid" },
	{ 0x018, EIO, "Host Identifier Inconsistent Format" },
	{ 0x019, EIO, "Keep Alive Timer Expired" },
	{ 0x01a, EINVAL, "Keep Alive Timeout Invalid" },
	{ 0x01b, ECANCELED, "Aborted due to Preempt and Abort" },
	{ 0x01c, EIO, "Sanitize Failed" },
	{ 0x01d, EBUSY, "Sanitize In Progress" },
	{ 0x01e, EINVAL, "SGL Data Block Granularity Invalid" },
	{ 0x01f, EOPNOTSUPP, "Command Not Supported for Queue in CMB" },
	{ 0x020, EROFS, "Namespace is Write Protected" },
	{ 0x021, EAGAIN, "Command Interrupted" },
	{ 0x022, EAGAIN, "Transient Transport Error" },
	{ 0x080, EINVAL, "LBA Out of Range" },
	{ 0x081, ENOSPC, "Capacity Exceeded" },
	{ 0x082, EBUSY, "Namespace Not Ready" },
	{ 0x083, EBUSY, "Reservation Conflict" },
	{ 0x084, EBUSY, "Format In Progress" },
	{ 0x100, EINVAL, "Completion Queue Invalid" },
	{ 0x101, EINVAL, "Invalid Queue Identifier" },
	{ 0x102, EINVAL, "Invalid Queue Size" },
	{ 0x103, EINVAL, "Abort Command Limit Exceeded" },
	{ 0x105, EINVAL, "Asynchronous Event Request Limit Exceeded" },
	{ 0x106, EINVAL, "Invalid Firmware Slot" },
	{ 0x107, EINVAL, "Invalid Firmware Image" },
	{ 0x108, EINVAL, "Invalid Interrupt Vector" },
	{ 0x109, EINVAL, "Invalid Log Page" },
	{ 0x10a, EINVAL, "Invalid Format" },
	{ 0x10c, EBUSY, "Invalid Queue Deletion" },
	{ 0x10d, EINVAL, "Feature Identifier Not Saveable" },
	{ 0x10e, EINVAL, "Feature Not Changeable" },
	{ 0x10f, EINVAL, "Feature Not Namespace Specific" },
	{ 0x115, ENOSPC, "Namespace Insufficient Capacity" },
	{ 0x116, ENOSPC, "Namespace Identifier Unavailable" },
	{ 0x118, EBUSY, "Namespace Already Attached" },
	{ 0x119, EACCES, "Namespace Is Private" },
	{ 0x11a, ENODEV, "Namespace Not Attached" },
	{ 0x180, EINVAL, "Conflicting Attributes" },
	{ 0x181, EINVAL, "Invalid Protection Information" },
	{ 0x182, EROFS, "Attempted Write to Read Only Range" },
	{ 0x280, EIO, "Write Fault" },
	{ 0x281, EIO, "Unrecovered Read Error" },
	{ 0x282, EILSEQ, "End-to-end Guard Check Error" },
	{ 0x283, EILSEQ, "End-to-end Application Tag Check Error" },
	{ 0x284, EILSEQ, "End-to-end Reference Tag Check Error" },
	{ 0x285, EIO, "Compare Failure" },
	{ 0x286, EACCES, "Access Denied" },
	{ 0x287, EIO, "Deallocated or Unwritten Logical Block" },
	{ 0x300, EIO, "Internal Path Error" },
	{ 0x301, EIO, "Asymmetric Access Persistent Loss" },
	{ 0x302, EIO, "Asymmetric Access Inaccessible" },
	{ 0x303, EAGAIN, "Asymmetric Access Transition" },
	{ 0x360, EIO, "Controller Pathing Error" },
	{ 0x370, EIO, "Host Pathing Error" },
	{ 0x371, EIO, "Command Aborted By Host" },
};

static const struct status *find(uint32_t status)
{
	uint32_t code = NVME_CODE(status);
	size_t low = 0, high = ARRAY_SIZE(table);

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (table[mid].code == code)
			return &table[mid];
		if (table[mid].code < code)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

const char *nvme_status_name(uint32_t status)
{
	static const char *const types[8] = { "Generic Command Error",	       "Command Specific Error",
					      "Media or Data Integrity Error", "Path Related Error",
					      "Reserved Status Type",	       "Reserved Status Type",
					      "Reserved Status Type",	       "Vendor Specific Error" };
	const struct status *s = find(status);

	return s ? s->name : types[NVME_SCT(status)];
}

int nvme_status_errno(uint32_t status)
{
	const struct status *s = find(status);

	/* Status code 0 with other bits set, such as "do not retry", is invalid: an error. */
	if (!(status & ~NVME_MORE))
		return 0;
	if (!NVME_CODE(status))
		return -EIO;
	return s ? -s->err : -EIO;
}
