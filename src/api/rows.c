/* SPDX-License-Identifier: MIT */
#include <strait/rows.h>

#include "api/api.h"
#include "engine/transfer/transfer.h"

STRAIT_API int strait_read_rows(struct strait_endpoint *ep, const struct strait_rows *rows,
				struct strait_region *region, uint64_t offset, struct strait_result *result)
{
	struct strait_transfer t = { .endpoint = ep, .region = region, .region_offset = offset };
	int rc;

	API_CHECK(ep && rows && region && result);
	API_ALIVE((struct strait_context *)ep->owner);
	memset(result, 0, sizeof(*result));
	rc = rows_check(ep->owner, rows, &t);
	if (!rc)
		rc = transfer_begin(&t);
	if (rc)
		return rc;
	rc = rows_read(&t, rows, result);
	transfer_end(&t, 1);
	return rc;
}
