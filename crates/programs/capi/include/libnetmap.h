/*
 * libnetmap: opens netmap ports by name.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * The name of a port is
 *
 *     netmap:NAME or valeID:NAME   an interface; a port of a switch (the ID may be empty)
 *     ...{PIPE  ...}PIPE           the two ends of a pipe in that port's region
 *
 * followed, in this order, by
 *
 *     -N  ^  ^N  *    one ring; all host rings; one host ring; NIC and host rings
 *     @N              in memory region N
 *     /FLAGS          x exclusive, z zero-copy monitor, t and r copy monitors, R and T rx or tx rings only
 *     @OPTION         share:PORT, conf:KEY=N,..., extmem:file=PATH,KEY=N,..., offset:initial=N,bits=N (disabled unless enabled)
 *
 * conf's keys are rings, tx-rings, rx-rings, host-rings, host-tx-rings, host-rx-rings, slots, tx-slots, rx-slots;
 * extmem's are file, if-num, if-size, ring-num, ring-size, buf-num, buf-size.
 *
 * Functions return 0 or a pointer. On failure they return -1 or NULL, set errno, and pass a text to the context's error function.
 */
#ifndef LIBNETMAP_H_
#define LIBNETMAP_H_

#include <net/netmap_user.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nmctx;
struct nmem_d;

/* ---- ports ---- */

struct nmport_d {
	struct nmreq_header hdr;
	struct nmreq_register reg;

	struct nmem_d *mem; /* ports with the same value can swap buffers */
	struct nmctx *ctx;

	int register_done;
	int mmap_done;
	struct nmreq_opt_extmem *extmem;

	int fd; /* -1 while not open */
	struct netmap_if *nifp;
	uint16_t first_tx_ring; /* bound rings; none if first > last */
	uint16_t last_tx_ring;
	uint16_t first_rx_ring;
	uint16_t last_rx_ring;
	uint16_t cur_tx_ring; /* used by nmport_inject() */
	uint16_t cur_rx_ring;

	struct nmport_cleanup_d *clist; /* private to the library */
};

/* Opens a port by its name: prepare, then open_desc. */
struct nmport_d *nmport_open(const char *portspec);
void nmport_close(struct nmport_d *d);
/* Copies a frame into a tx ring, using the bound rings in turn. Returns -1 if there is no room. */
int nmport_inject(struct nmport_d *d, const void *buf, size_t size);

/* The steps of nmport_open(): new + parse = prepare; register + mmap = open_desc. Each step has an undo function. */
struct nmport_d *nmport_new(void);
int nmport_parse(struct nmport_d *d, const char *portspec);
int nmport_register(struct nmport_d *d);
int nmport_mmap(struct nmport_d *d);
void nmport_delete(struct nmport_d *d);
void nmport_undo_parse(struct nmport_d *d);
void nmport_undo_register(struct nmport_d *d);
void nmport_undo_mmap(struct nmport_d *d);
struct nmport_d *nmport_prepare(const char *portspec);
int nmport_open_desc(struct nmport_d *d);
void nmport_undo_prepare(struct nmport_d *d);
void nmport_undo_open_desc(struct nmport_d *d);

/* Returns a prepared copy: same name and request, no options. A port with extmem must be registered first. */
struct nmport_d *nmport_clone(struct nmport_d *d);

/* Between prepare and open_desc: places the region in the program's own memory, or in a file. */
int nmport_extmem(struct nmport_d *d, void *base, size_t size);
int nmport_extmem_from_file(struct nmport_d *d, const char *fname);
/* Returns the sizes of that memory's pools, to be set before or read after registration. NULL without extmem. */
struct nmreq_pools_info *nmport_extmem_getinfo(struct nmport_d *d);
/* Between prepare and open_desc: requests frames at an offset in their buffers. */
int nmport_offset(struct nmport_d *d, uint64_t initial, uint64_t maxoff, uint64_t bits, uint64_t mingap);

/* Forbid or allow an @option in names. */
void nmport_disable_option(const char *opt);
int nmport_enable_option(const char *opt);

/* ---- requests ---- */

void nmreq_header_init(struct nmreq_header *hdr, uint16_t reqtype, void *body);
/* Parse the name, or the text after it up to an @option, and advance *ppspec past it. */
int nmreq_header_decode(const char **ppspec, struct nmreq_header *hdr, struct nmctx *ctx);
int nmreq_register_decode(const char **pmode, struct nmreq_register *reg, struct nmctx *ctx);
/* Returns the number of a port's region, and advances *portname past the port's name. -1 on error. */
int32_t nmreq_get_mem_id(const char **portname, struct nmctx *ctx);

/* Options of a program's own: each @option is passed to the parser of its prefix. */
struct nmreq_parse_ctx;
typedef int (*nmreq_opt_parser_cb)(struct nmreq_parse_ctx *);

#define NMREQ_OPT_MAXKEYS 16

struct nmreq_opt_key {
	const char *key;
	int id; /* its index in nmreq_parse_ctx.keys */
	unsigned int flags;
#define NMREQ_OPTK_ALLOWEMPTY (1U << 0)
#define NMREQ_OPTK_MUSTSET (1U << 1)
#define NMREQ_OPTK_DEFAULT (1U << 2)
};

struct nmreq_opt_parser {
	const char *prefix;
	nmreq_opt_parser_cb parse;
	int default_key; /* index in keys; -1 for none */
	int nr_keys;
	unsigned int flags;
#define NMREQ_OPTF_DISABLED (1U << 0)
#define NMREQ_OPTF_ALLOWEMPTY (1U << 1)
	struct nmreq_opt_parser *next;
	struct nmreq_opt_key keys[NMREQ_OPT_MAXKEYS];
} __attribute__((aligned(16)));

struct nmreq_parse_ctx {
	struct nmctx *ctx;
	void *token;
	const char *keys[NMREQ_OPT_MAXKEYS]; /* values by key id, NULL for absent keys */
};

int nmreq_options_decode(const char *opt, struct nmreq_opt_parser *parsers, void *token, struct nmctx *ctx);

/* A request's list of options. */
void nmreq_push_option(struct nmreq_header *hdr, struct nmreq_option *opt);
void nmreq_remove_option(struct nmreq_header *hdr, struct nmreq_option *opt);
struct nmreq_option *nmreq_find_option(struct nmreq_header *hdr, uint32_t reqtype);
void nmreq_free_options(struct nmreq_header *hdr);
const char *nmreq_option_name(uint32_t reqtype);
#define nmreq_foreach_option(h_, o_) \
	for ((o_) = (struct nmreq_option *)(uintptr_t)((h_)->nr_options); (o_) != NULL; \
	     (o_) = (struct nmreq_option *)(uintptr_t)((o_)->nro_next))

/* ---- contexts ---- */

typedef void (*nmctx_error_cb)(struct nmctx *, const char *);
typedef void *(*nmctx_malloc_cb)(struct nmctx *, size_t);
typedef void (*nmctx_free_cb)(struct nmctx *, void *);
typedef void (*nmctx_lock_cb)(struct nmctx *, int);

struct nmctx {
	int verbose; /* 0: errors are not reported */
	nmctx_error_cb error;
	nmctx_malloc_cb malloc;
	nmctx_free_cb free;
	nmctx_lock_cb lock; /* 1 locks, 0 unlocks */
	struct nmem_d *mem_descs;
};

struct nmem_d {
	uint16_t mem_id;
	int refcount;
	void *mem;
	size_t size;
	int is_extmem;
	struct nmem_d *next;
	struct nmem_d *prev;
};

struct nmctx *nmctx_get(void);
struct nmctx *nmctx_set_default(struct nmctx *ctx);
void nmctx_set_threadsafe(void);
void nmctx_ferror(struct nmctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *nmctx_malloc(struct nmctx *ctx, size_t size);
void nmctx_free(struct nmctx *ctx, void *p);
void nmctx_lock(struct nmctx *ctx);
void nmctx_unlock(struct nmctx *ctx);

/* libnetmap is always thread-safe; the variable exists for programs that refer to it. */
extern int nmctx_threadsafe;

#ifdef __cplusplus
}
#endif

#endif /* LIBNETMAP_H_ */
