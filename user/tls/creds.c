// SPDX-License-Identifier: GPL-2.0-only
/* Credentials: which ones, loaded, and checked before anything connects. */
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/say.h"
#include "tls/tls_internal.h"

/*
 * One version and one cipher, which the kernel knows too. Without the pin a pre-shared key gets
 * ChaCha20, at a quarter of the speed. AES-128-GCM has SHA-256, as a key of psktool's is bound to.
 */
#define PRIORITY	"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM"
#define PRIORITY_PSK	PRIORITY ":-KX-ALL:+ECDHE-PSK"

static const char *creds_side(enum tls_role role)
{
	return role == TLS_SENDER ? "client" : "server";
}

/* file: "%s-cert.pem", or a name without one. */
static bool creds_path(const struct tls_creds *c, const char *side, const char *file, char *path)
{
	return snprintf(path, PATH_MAX, "%s/%s%s", c->from, side, file) < PATH_MAX;
}

static int creds_bad(const struct tls_creds *c, const char *what, const char *why, struct err *e)
{
	return err_set(e, GW_TLS, EACCES, "%s/%s: %s", c->from, what, why);
}

/* Our certificate is one that the other end accepts, if it has the same CA. */
static int creds_check_own(struct tls_creds *c, const gnutls_x509_crt_t *chain, unsigned int n,
			   struct err *e)
{
	gnutls_x509_trust_list_t trust;
	unsigned int status = 0;
	size_t len = sizeof(c->subject);
	char file[32];

	snprintf(file, sizeof(file), "%s-cert.pem", creds_side(c->role));
	if (gnutls_x509_crt_get_dn(chain[0], c->subject, &len) < 0)
		strcpy(c->subject, "(a subject too long to show)");
	c->expires = gnutls_x509_crt_get_expiration_time(chain[0]);
	gnutls_certificate_get_trust_list(c->x509, &trust);
	if (gnutls_x509_trust_list_verify_crt2(trust, (gnutls_x509_crt_t *)chain, n, NULL, 0, 0,
					       &status, NULL) < 0)
		return creds_bad(c, file, "it cannot be verified", e);
	if (status & GNUTLS_CERT_EXPIRED)
		return creds_bad(c, file, "it has expired: make a new one", e);
	if (status & GNUTLS_CERT_NOT_ACTIVATED)
		return creds_bad(c, file, "it is not valid yet: look at this host's clock", e);
	if (status & GNUTLS_CERT_REVOKED)
		return creds_bad(c, file, "ca-crl.pem says that it is revoked", e);
	if (status)
		return creds_bad(c, file, "the CA of ca-cert.pem has not signed it", e);
	return 0;
}

static int creds_load_own(struct tls_creds *c, struct err *e)
{
	char cert[PATH_MAX], key[PATH_MAX], file[64];
	gnutls_x509_crt_t *chain = NULL;
	unsigned int n = 0;
	int r;

	if (!creds_path(c, creds_side(c->role), "-cert.pem", cert) ||
	    !creds_path(c, creds_side(c->role), "-key.pem", key))
		return err_set(e, GW_USAGE, ENAMETOOLONG, "the path of --tls-creds is too long");
	snprintf(file, sizeof(file), "%s-cert.pem and %s-key.pem", creds_side(c->role),
		 creds_side(c->role));
	r = gnutls_certificate_set_x509_key_file(c->x509, cert, key, GNUTLS_X509_FMT_PEM);
	if (r < 0)
		return creds_bad(c, file, r == GNUTLS_E_FILE_ERROR ?
				 "a file is missing, or may not be read" : gnutls_strerror(r), e);
	r = gnutls_certificate_get_x509_crt(c->x509, 0, &chain, &n);
	if (r < 0 || !n)
		return creds_bad(c, file, "no certificate is in it", e);
	r = creds_check_own(c, chain, n, e);
	for (unsigned int i = 0; i < n; i++)
		gnutls_x509_crt_deinit(chain[i]);
	gnutls_free(chain);
	return r;
}

static int creds_load_x509(struct tls_creds *c, struct err *e)
{
	char path[PATH_MAX];
	int r = gnutls_certificate_allocate_credentials(&c->x509);

	if (r < 0 || !creds_path(c, "", "ca-cert.pem", path))
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = gnutls_certificate_set_x509_trust_file(c->x509, path, GNUTLS_X509_FMT_PEM);
	if (r <= 0)
		return creds_bad(c, "ca-cert.pem", r == GNUTLS_E_FILE_ERROR ?
				 "it is missing, or may not be read: " TLS_HOW :
				 "it holds no certificate", e);
	if (creds_path(c, "", "ca-crl.pem", path) && !access(path, F_OK) &&
	    gnutls_certificate_set_x509_crl_file(c->x509, path, GNUTLS_X509_FMT_PEM) < 0)
		return creds_bad(c, "ca-crl.pem", "it is no list of revoked certificates", e);
	return creds_load_own(c, e);
}

/* GnuTLS frees the key. An unknown user gets a key that fits nothing: the same as a wrong one. */
static int creds_find_user(gnutls_session_t session, const char *user, gnutls_datum_t *key)
{
	const struct tls_creds *c = ((struct tls *)gnutls_session_get_ptr(session))->creds;
	const struct psk_user *u = NULL;

	for (unsigned int i = 0; i < c->nr_users; i++)
		if (!strcmp(c->users[i].name, user))
			u = &c->users[i];
	key->size = u ? u->len : PSK_KEY_MAX;
	key->data = gnutls_malloc(key->size);
	if (!key->data)
		return -1;
	if (u)
		memcpy(key->data, u->key, u->len);
	else if (gnutls_rnd(GNUTLS_RND_KEY, key->data, key->size) < 0)
		return -1;
	return 0;
}

static int creds_use_users(struct tls_creds *c)
{
	gnutls_datum_t key = { c->users[0].key, c->users[0].len };
	int r;

	if (c->role == TLS_SENDER) {
		r = gnutls_psk_allocate_client_credentials(&c->psk_client);
		return r ? r : gnutls_psk_set_client_credentials(c->psk_client, c->users[0].name,
								 &key, GNUTLS_PSK_KEY_RAW);
	}
	r = gnutls_psk_allocate_server_credentials(&c->psk_server);
	if (!r)
		gnutls_psk_set_server_credentials_function(c->psk_server, creds_find_user);
	return r;
}

static int creds_load_psk(struct tls_creds *c, struct err *e)
{
	gnutls_datum_t text = { NULL, 0 };
	const char *why;
	unsigned int line;
	int n, r = gnutls_load_file(c->from, &text);

	if (r < 0)
		return err_set(e, GW_TLS, EACCES, "%s is missing, or may not be read: " TLS_HOW, c->from);
	c->users = calloc(PSK_USERS_MAX, sizeof(*c->users));
	n = -ENOMEM;
	if (c->users)
		n = psk_parse((char *)text.data, text.size, c->users, PSK_USERS_MAX, &line, &why);
	gnutls_memset(text.data, 0, text.size);
	gnutls_free(text.data);
	if (n == -ENOMEM)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (n < 0 && line)
		return err_set(e, GW_TLS, EINVAL, "%s, line %u: %s", c->from, line, why);
	if (n < 0)
		return err_set(e, GW_TLS, EINVAL, "%s: %s", c->from, why);
	c->nr_users = (unsigned int)n;
	r = creds_use_users(c);
	return r < 0 ? err_set(e, GW_INTERNAL, ENOMEM, "%s: %s", c->from, gnutls_strerror(r)) : 0;
}

/* The first that has a CA; NULL: none. One without our certificate is an error, not no TLS. */
static const char *creds_default_dir(void)
{
	static const char *const dirs[] = TLS_DEFAULT_DIRS;
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/ca-cert.pem", dirs[i]);
		if (!access(path, F_OK))
			return dirs[i];
	}
	return NULL;
}

static int creds_load(struct tls_creds *c, bool psk, struct err *e)
{
	int r = gnutls_priority_init(&c->priority, psk ? PRIORITY_PSK : PRIORITY, NULL);

	if (r < 0)
		return err_set(e, GW_TLS, EINVAL, "GnuTLS offers no TLS 1.3 with " TLS_CIPHER_NAME " on this host: %s",
			       gnutls_strerror(r));
	return psk ? creds_load_psk(c, e) : creds_load_x509(c, e);
}

static int creds_check_options(const struct tls_options *o, struct err *e)
{
	if (o->creds && o->psk)
		return err_set(e, GW_USAGE, EINVAL, "--tls-creds and --tls-psk are two ways: give one");
	if (o->insecure && (o->creds || o->psk))
		return err_set(e, GW_USAGE, EINVAL, "--insecure is without TLS: leave out --tls-creds and --tls-psk");
	if (o->hostname && (o->psk || o->insecure))
		return err_set(e, GW_USAGE, EINVAL, "--tls-hostname names a certificate: it needs --tls-creds");
	return 0;
}

int tls_creds_open(const struct tls_options *o, enum tls_role role, struct tls_creds **out,
		   struct err *e)
{
	const char *from = o->creds ? o->creds : o->psk;
	struct tls_creds *c;
	int r = creds_check_options(o, e);

	*out = NULL;
	if (r || o->insecure)
		return r;
	if (!from)
		from = creds_default_dir();
	if (!from && o->hostname)
		return err_set(e, GW_USAGE, EINVAL, "--tls-hostname needs --tls-creds");
	if (!from)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	c->role = role;
	snprintf(c->from, sizeof(c->from), "%s", from);
	snprintf(c->name, sizeof(c->name), "%s", o->hostname ? o->hostname : "");
	r = creds_load(c, o->psk, e);
	if (r) {
		tls_creds_free(c);
		return r;
	}
	if (!o->creds && !o->psk)
		say("TLS with the credentials in %s; --insecure goes without", from);
	*out = c;
	return 0;
}

void tls_creds_free(struct tls_creds *c)
{
	if (!c)
		return;
	if (c->users)
		gnutls_memset(c->users, 0, PSK_USERS_MAX * sizeof(*c->users));
	free(c->users);
	if (c->x509)
		gnutls_certificate_free_credentials(c->x509);
	if (c->psk_client)
		gnutls_psk_free_client_credentials(c->psk_client);
	if (c->psk_server)
		gnutls_psk_free_server_credentials(c->psk_server);
	gnutls_priority_deinit(c->priority);
	free(c);
}

void tls_creds_call(struct tls_creds *c, const char *addr)
{
	const char *colon = strrchr(addr, ':');
	size_t len = colon ? (size_t)(colon - addr) : strlen(addr);

	if (c->role != TLS_SENDER || *c->name)
		return;
	if (len > 2 && addr[0] == '[' && addr[len - 1] == ']') {
		addr++;
		len -= 2;
	}
	snprintf(c->name, sizeof(c->name), "%.*s", (int)len, addr);
}

int tls_creds_days(const struct tls_creds *c)
{
	double days = difftime(c->expires, time(NULL)) / 86400;

	return c->nr_users || days > INT_MAX ? INT_MAX : (int)days;
}

void tls_creds_describe(const struct tls_creds *c, char *text, size_t len)
{
	char day[16] = "?";
	struct tm tm;

	if (c->nr_users) {
		snprintf(text, len, "a pre-shared key (%.300s), as user \"%s\"", c->from,
			 c->users[0].name);
		return;
	}
	if (gmtime_r(&c->expires, &tm))
		strftime(day, sizeof(day), "%Y-%m-%d", &tm);
	snprintf(text, len, "the certificate of %s (%.300s), which expires on %s", c->subject, c->from,
		 day);
}
