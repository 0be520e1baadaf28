/* SPDX-License-Identifier: MIT */
#include "lib/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lib/cli.h"

static const char units[] = "KMGT";

static int unit_parse(const char *s, uint64_t *ret)
{
	const char *unit;
	uint64_t base = 1024, value = 1;

	if (!*s || !strcasecmp(s, "B")) {
		*ret = 1;
		return 0;
	}
	unit = strchr(units, toupper((unsigned char)*s));
	if (!unit)
		return -EINVAL;
	s++;
	if (!strcasecmp(s, "B"))
		base = 1000;
	else if (*s && strcasecmp(s, "iB"))
		return -EINVAL;
	for (long i = unit - units; i >= 0; i--)
		value *= base;
	*ret = value;
	return 0;
}

int size_parse(const char *text, uint64_t *ret)
{
	const char *s = text, *fraction = NULL;
	unsigned __int128 value = 0;
	uint64_t unit, scale = 1;
	int err;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s) || (*s == '.' && !fraction); s++) {
		if (*s == '.') {
			fraction = s + 1;
			continue;
		}
		if (fraction) {
			if (s - fraction >= 12)
				return -EINVAL;
			scale *= 10;
		}
		value = value * 10 + (unsigned int)(*s - '0');
		if (value > (unsigned __int128)UINT64_MAX * 1000000)
			return -ERANGE;
	}
	if (fraction && s == fraction)
		return -EINVAL;
	if (*s == ' ')
		s++;
	err = unit_parse(s, &unit);
	if (err)
		return err;
	value = value * unit;
	if (value % scale && unit == 1)
		return -EINVAL; /* a part of a byte */
	value /= scale;
	if (value > INT64_MAX)
		return -ERANGE;
	*ret = (uint64_t)value;
	return 0;
}

const char *size_format(uint64_t bytes, char buf[SIZE_TEXT])
{
	double value = (double)bytes;
	int unit = -1;

	while (value >= 1024 && unit < (int)strlen(units) - 1) {
		value /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buf, SIZE_TEXT, "%" PRIu64 " B", bytes);
	else
		snprintf(buf, SIZE_TEXT, "%.*f %ciB", value >= 100 ? 0 : value >= 10 ? 1 : 2, value, units[unit]);
	return buf;
}

const char *size_short(uint64_t bytes, char buf[SIZE_TEXT])
{
	int unit = -1;

	while (bytes && !(bytes % 1024) && unit < (int)strlen(units) - 1) {
		bytes /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(buf, SIZE_TEXT, "%" PRIu64, bytes);
	else
		snprintf(buf, SIZE_TEXT, "%" PRIu64 "%c", bytes, units[unit]);
	return buf;
}

double rate_gbs(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0; /* bytes per nanosecond are GB per second */
}

const char *rate_format(uint64_t bytes, uint64_t ns, char buf[SIZE_TEXT])
{
	double gbs = rate_gbs(bytes, ns);

	snprintf(buf, SIZE_TEXT, "%.*f GB/s", gbs >= 100 ? 0 : gbs >= 10 ? 1 : gbs >= 0.1 ? 2 : 4, gbs);
	return buf;
}
