/* SPDX-License-Identifier: MIT */
#include "lib/transfer_totals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/progress.h"
#include "lib/size.h"

/* Length of one step while a progress bar is shown: long enough that splitting does not slow the transfer. */
#define STEP (256 * MIB)

/* None of the required routes is possible: print the verdict of each. */
static int no_route(const struct strait_transfer *t, const char *path)
{
	struct strait_route_report report = { .size = sizeof(report) };
	const char *verb = t->op == STRAIT_READ ? "read" : "write";
	char hint[256] = "see: strait explain", why[512] = "", text[256];

	if (!strait_route_query(t, &report)) {
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
			const struct strait_route_verdict *v = &report.verdict[r];
			size_t n = strlen(why);

			if (!(t->routes & STRAIT_ROUTE_MASK(r)) || v->usable)
				continue;
			strait_route_verdict_text(v, text, sizeof(text));
			snprintf(why + n, sizeof(why) - n, "%s%s: %s", n ? "; " : "", strait_route_name(r), text);
			if (strait_route_verdict_fix(v)[0])
				snprintf(hint, sizeof(hint), "%s", strait_route_verdict_fix(v));
		}
	}
	return fail(CLI_NO_ROUTE, hint, "%s: none of the routes in --route can %s it: %s", path, verb,
		    why[0] ? why : error_text(-EOPNOTSUPP));
}

int transfer_failed(const struct strait_transfer *t, const struct strait_result *result, int err, const char *path)
{
	const char *verb = t->op == STRAIT_READ ? "reading" : "writing", *hint = NULL;
	char device[48] = "";

	if (err == -EOPNOTSUPP && t->routes != STRAIT_ROUTE_ANY)
		return no_route(t, path);
	switch (-err) {
	case ENOSPC:
	case EDQUOT:
		hint = "free space on the file system, or use a smaller --size";
		break;
	case EFBIG:
		hint = "the file system or a limit (ulimit -f) does not allow a file this long";
		break;
	case ENOMEM:
		hint = "free memory, or raise the limit on locked memory (ulimit -l)";
		break;
	case EIO:
		hint = "the drive or the device reported an error: dmesg may say more";
		break;
	}
	if (result->device_status)
		snprintf(device, sizeof(device), " (device status %d)", (int)result->device_status);
	return fail(err == -ENODEV ? CLI_NO_ROUTE : CLI_FAILED, hint,
		    "%s: %s %" PRIu64 " bytes at offset %" PRIu64 " failed after %" PRIu64 " bytes: %s%s", path, verb,
		    t->length, t->endpoint_offset, result->bytes, error_text(err), device);
}

void totals_add(struct transfer_totals *f, const struct strait_result *result)
{
	f->bytes += result->bytes;
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		f->route_bytes[r] += result->route_bytes[r];
}

int totals_run(struct transfer_totals *f, const struct strait_transfer *t, const char *path, uint64_t base)
{
	uint64_t step = progress_wanted() && base != TOTALS_NO_PROGRESS ? STEP : t->length;

	for (uint64_t done = 0; done < t->length;) {
		struct strait_result result = { 0 };
		struct strait_transfer piece = *t;
		uint64_t start;
		int err;

		piece.endpoint_offset += done;
		piece.region_offset += done;
		piece.length = min_u64(step, t->length - done);
		start = now_ns();
		err = strait_transfer_run(&piece, STRAIT_FOREVER, &result);
		f->ns += now_ns() - start;
		totals_add(f, &result);
		if (err)
			return transfer_failed(&piece, &result, err, path);
		if (result.bytes < piece.length)
			return fail(CLI_FAILED, "the file may have been truncated during the transfer",
				    "%s ends at byte %" PRIu64 ", %" PRIu64 " bytes too early", path,
				    piece.endpoint_offset + result.bytes, piece.length - result.bytes);
		done += piece.length;
		if (base != TOTALS_NO_PROGRESS)
			progress_set(base + done);
	}
	return CLI_OK;
}

const char *routes_text(const uint64_t route_bytes[STRAIT_ROUTE_COUNT], char *buf)
{
	uint64_t sum = 0;
	char *at = buf;

	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		sum += route_bytes[r];
	strcpy(buf, "-");
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		if (!route_bytes[r])
			continue;
		at += sprintf(at, "%s%s", at == buf ? "" : ", ", strait_route_name(r));
		if (route_bytes[r] < sum)
			at += sprintf(at, " %.1f %%", 100.0 * (double)route_bytes[r] / (double)sum);
	}
	return buf;
}

void routes_json(const uint64_t route_bytes[STRAIT_ROUTE_COUNT], struct json *j)
{
	json_object(j, "routes");
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
		if (route_bytes[r])
			json_uint(j, strait_route_name(r), route_bytes[r]);
	json_close(j);
}

void totals_json(const struct transfer_totals *f, struct json *j)
{
	json_uint(j, "bytes", f->bytes);
	json_number(j, "seconds", (double)f->ns / 1e9);
	json_number(j, "gb_per_s", rate_gbs(f->bytes, f->ns));
	routes_json(f->route_bytes, j);
}
