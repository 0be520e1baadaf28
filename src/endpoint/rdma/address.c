/* SPDX-License-Identifier: MIT */
/* Addresses of peers: IPv4 and IPv6. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "endpoint/rdma/session.h"

static void set_port(struct sockaddr_storage *sa, uint32_t port)
{
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)sa)->sin_port = htons((uint16_t)port);
}

int address_resolve(const char *host, uint32_t port, bool passive, struct sockaddr_storage *ret)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0 }, *found;

	if (port > UINT16_MAX)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	if (!host) {
		ret->ss_family = AF_INET6; /* takes IPv4, too */
		set_port(ret, port);
		return passive ? 0 : -EINVAL;
	}
	if (getaddrinfo(host, NULL, &hints, &found))
		return -EADDRNOTAVAIL;
	memcpy(ret, found->ai_addr, min_u64(found->ai_addrlen, sizeof(*ret)));
	freeaddrinfo(found);
	set_port(ret, port);
	return 0;
}

/* IPv4 as the IPv6 address that maps it: a listener on all addresses sees it so. */
static struct in6_addr mapped(const struct sockaddr *sa)
{
	struct in6_addr a = { 0 };

	if (sa->sa_family == AF_INET6)
		return ((const struct sockaddr_in6 *)sa)->sin6_addr;
	if (sa->sa_family == AF_INET) {
		a.s6_addr[10] = a.s6_addr[11] = 0xff;
		memcpy(&a.s6_addr[12], &((const struct sockaddr_in *)sa)->sin_addr, 4);
	}
	return a;
}

static uint16_t port_of(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)sa)->sin6_port :
					   ((const struct sockaddr_in *)sa)->sin_port;
}

void address_encode(const struct sockaddr *sa, uint8_t out[HS_ADDRESS])
{
	struct in6_addr a = mapped(sa);
	uint16_t port = port_of(sa);

	memcpy(out, &a, sizeof(a));
	memcpy(out + sizeof(a), &port, sizeof(port));
}

void address_text(const struct sockaddr *sa, char *text, size_t len)
{
	struct in6_addr a = mapped(sa);
	bool v4 = IN6_IS_ADDR_V4MAPPED(&a);
	char host[INET6_ADDRSTRLEN] = "";

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? (const void *)&a.s6_addr[12] : &a, host, sizeof(host));
	str_format(text, len, v4 ? "%s:%u" : "[%s]:%u", host, ntohs(port_of(sa)));
}

bool address_gid_is_own(const union ibv_gid *gid)
{
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6 };

	memcpy(&sa.sin6_addr, gid, sizeof(sa.sin6_addr));
	return address_is_own((struct sockaddr *)&sa);
}

bool address_is_own(const struct sockaddr *sa)
{
	struct in6_addr a = mapped(sa), b;
	struct ifaddrs *all;
	bool own = false;

	if (getifaddrs(&all))
		return false;
	for (struct ifaddrs *i = all; i && !own; i = i->ifa_next) {
		if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		b = mapped(i->ifa_addr);
		own = !memcmp(&a, &b, sizeof(a));
	}
	freeifaddrs(all);
	return own;
}
