/* SPDX-License-Identifier: MIT */
#include "endpoint/rdma/mac.h"

#include <errno.h>

#include "base/util.h"
#include "os/os.h"

#ifdef STRAIT_HAVE_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/opensslv.h>

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#define LIBRARY "libcrypto.so.3"
#else
#define LIBRARY "libcrypto.so.1.1"
#endif

static struct {
	__typeof__(&HMAC) hmac;
	__typeof__(&EVP_sha256) sha256;
} crypto;

OS_FORK_LOCK(load_lock, NULL)

/* The library is never unloaded. */
static int load_locked(char *why, size_t len)
{
	void *lib, *hmac, *sha256;

	if (crypto.hmac)
		return 0;
	lib = os_dl_open(LIBRARY, why, len);
	if (!lib)
		return -EOPNOTSUPP;
	hmac = os_dl_sym(lib, "HMAC");
	sha256 = os_dl_sym(lib, "EVP_sha256");
	if (!hmac || !sha256) {
		str_format(why, len, "%s has no HMAC-SHA-256", LIBRARY);
		os_dl_close(lib);
		return -EOPNOTSUPP;
	}
	memcpy(&crypto.sha256, &sha256, sizeof(sha256));
	memcpy(&crypto.hmac, &hmac, sizeof(hmac));
	return 0;
}

int mac_load(char *why, size_t len)
{
	int rc;

	pthread_mutex_lock(&load_lock);
	rc = load_locked(why, len);
	pthread_mutex_unlock(&load_lock);
	return rc;
}

int mac_hmac(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WIRE_MAC])
{
	unsigned int n = 0;

	if (!crypto.hmac || key_len > INT32_MAX)
		return -EOPNOTSUPP;
	/* OpenSSL takes an absent key for that of an earlier call. */
	if (!crypto.hmac(crypto.sha256(), key_len ? key : "", (int)key_len, data, len, mac, &n))
		return -ENOMEM;
	return n == WIRE_MAC ? 0 : -EIO;
}

#else

int mac_load(char *why, size_t len)
{
	str_copy(why, len, "this build has no HMAC-SHA-256: install libssl-dev and build again");
	return -EOPNOTSUPP;
}

int mac_hmac(const void *key, size_t key_len, const void *data, size_t len, uint8_t mac[WIRE_MAC])
{
	return -EOPNOTSUPP;
}

#endif
