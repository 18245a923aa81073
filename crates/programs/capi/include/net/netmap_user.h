/*
 * Finds rings and buffers. With NETMAP_WITH_LIBS defined, also nm_open() and related functions: a whole netmap client in one header.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef _NET_NETMAP_USER_H_
#define _NET_NETMAP_USER_H_

/* Programs rely on these headers, which netmap's own header includes. */
#include <ctype.h>
#include <net/if.h>
#include <net/netmap.h>
#include <string.h>
#include <sys/socket.h>

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* The object at `offset` bytes from `ptr`. */
#define _NETMAP_OFFSET(type, ptr, offset) ((type)(void *)((char *)(ptr) + (offset)))

#define NETMAP_IF(_base, _ofs) _NETMAP_OFFSET(struct netmap_if *, _base, _ofs)
/* Host tx rings follow the tx rings, host rx rings the rx rings. */
#define NETMAP_TXRING(nifp, index) _NETMAP_OFFSET(struct netmap_ring *, nifp, (nifp)->ring_ofs[index])
#define NETMAP_RXRING(nifp, index) \
	_NETMAP_OFFSET(struct netmap_ring *, nifp, \
		       (nifp)->ring_ofs[(index) + (nifp)->ni_tx_rings + (nifp)->ni_host_tx_rings])
#define NETMAP_BUF(ring, index) ((char *)(ring) + (ring)->buf_ofs + ((size_t)(index) * (ring)->nr_buf_size))
#define NETMAP_BUF_IDX(ring, buf) (((char *)(buf) - ((char *)(ring) + (ring)->buf_ofs)) / (ring)->nr_buf_size)

static inline uint32_t
nm_ring_next(struct netmap_ring *r, uint32_t i)
{
	return unlikely(i + 1 == r->num_slots) ? 0 : i + 1;
}

/* Whether head has passed slots that the host has not taken yet. */
static inline int
nm_tx_pending(struct netmap_ring *r)
{
	return nm_ring_next(r, r->tail) != r->head;
}

/* Number of slots from head to tail, which belong to the program. */
static inline uint32_t
nm_ring_space(struct netmap_ring *ring)
{
	int n = (int)(ring->tail - ring->cur);

	return (uint32_t)(n < 0 ? n + (int)ring->num_slots : n);
}

static inline int
nm_ring_empty(struct netmap_ring *ring)
{
	return ring->head == ring->tail;
}

/* Copies a frame; both places may be read and written up to a multiple of 64 bytes. */
static inline void
nm_pkt_copy(const void *_src, void *_dst, int l)
{
	memcpy(_dst, _src, (size_t)l);
}

#ifdef NETMAP_WITH_LIBS

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef ND /* messages for developers */
#define ND(_fmt, ...) do {} while (0)
#define D(_fmt, ...) \
	do { \
		struct timeval _t0; \
		gettimeofday(&_t0, NULL); \
		fprintf(stderr, "%03d.%06d %s [%d] " _fmt "\n", (int)(_t0.tv_sec % 1000), (int)_t0.tv_usec, \
			__func__, __LINE__, ##__VA_ARGS__); \
	} while (0)
/* At most lps messages per second. */
#define RD(lps, format, ...) \
	do { \
		static int __t0, __cnt; \
		struct timeval __xxts; \
		gettimeofday(&__xxts, NULL); \
		if (__t0 != __xxts.tv_sec) { \
			__t0 = (int)__xxts.tv_sec; \
			__cnt = 0; \
		} \
		if (__cnt++ < lps) \
			D(format, ##__VA_ARGS__); \
	} while (0)
#endif

/* A program may use some of these functions and not others. */
#define NM_LIB static __attribute__((__unused__))

struct nm_desc;

struct nm_pkthdr { /* begins like libpcap's */
	struct timeval ts;
	uint32_t caplen;
	uint32_t len;
	uint64_t flags;
#define NM_MORE_PKTS 1 /* more frames are available */
	struct nm_desc *d;
	struct netmap_slot *slot;
	uint8_t *buf;
};

struct nm_stat { /* like libpcap's */
	u_int ps_recv;
	u_int ps_drop;
	u_int ps_ifdrop;
};

#define NM_ERRBUF_SIZE 512

struct nm_desc {
	struct nm_desc *self; /* points to itself in a valid descriptor */
	int fd;
	void *mem; /* the region */
	uint64_t memsize;
	int done_mmap; /* this descriptor unmaps the region */
	struct netmap_if *const nifp;
	uint16_t first_tx_ring, last_tx_ring, cur_tx_ring;
	uint16_t first_rx_ring, last_rx_ring, cur_rx_ring;
	struct nmreq req;
	struct nm_pkthdr hdr;
	struct netmap_ring *const some_ring; /* any ring, to find buffers from */
	void *const buf_start;
	void *const buf_end;
	int snaplen;
	int promisc;
	int to_ms;
	char *errbuf;
	uint32_t if_flags;
	uint32_t if_reqcap;
	uint32_t if_curcap;
	struct nm_stat st;
	char msg[NM_ERRBUF_SIZE];
};

#define P2NMD(p) ((struct nm_desc *)(p))
#define IS_NETMAP_DESC(d) ((d) && P2NMD(d)->self == P2NMD(d))
#define NETMAP_FD(d) (P2NMD(d)->fd)

typedef void (*nm_cb_t)(u_char *, const struct nm_pkthdr *, const u_char *d);

enum {
	NM_OPEN_NO_MMAP = 0x040000,  /* use the parent's mapping */
	NM_OPEN_IFNAME = 0x080000,   /* the parent's name with the rings and flags of ifname */
	NM_OPEN_ARG1 = 0x100000,     /* take nr_arg1 from the parent */
	NM_OPEN_ARG2 = 0x200000,     /* take nr_arg2 from the parent */
	NM_OPEN_ARG3 = 0x400000,     /* take nr_arg3 from the parent */
	NM_OPEN_RING_CFG = 0x800000, /* take numbers of rings and slots from the parent */
};

/*
 * Opens [netmap:]ifname, valeX:port, with rings (-N, ^, *), a pipe end ({N, }N), a region (@N) and flags (/xztrRT) after it.
 * `req` has values that the name does not set; `flags` are NM_OPEN_*, and NETMAP_NO_TX_POLL, NETMAP_DO_RX_POLL and NR_* to be added;
 * `arg` is a parent descriptor whose mapping and arguments may be used. Returns NULL and sets errno on failure.
 */
NM_LIB struct nm_desc *nm_open(const char *ifname, const struct nmreq *req, uint64_t flags, const struct nm_desc *arg);
NM_LIB int nm_close(struct nm_desc *);
/* Maps the region, or uses the parent's mapping if both are in one region. */
NM_LIB int nm_mmap(struct nm_desc *, const struct nm_desc *);
/* Puts a frame into a tx ring. Returns its length; 0 if there was no room. */
NM_LIB int nm_inject(struct nm_desc *, const void *, size_t);
/* Passes up to cnt frames (0 or less: all) to a callback. Returns their number. */
NM_LIB int nm_dispatch(struct nm_desc *, int, nm_cb_t, u_char *);
/* Returns the next frame, or NULL. The frame belongs to the program until the next call. */
NM_LIB u_char *nm_nextpkt(struct nm_desc *, struct nm_pkthdr *);
/* Fills a descriptor's request from a name. Returns 0, or -1 with a text in err. */
NM_LIB int nm_parse(const char *ifname, struct nm_desc *d, char *err);

static inline int
nm_is_identifier(const char *s, const char *e)
{
	for (; s != e; s++) {
		int letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');

		if (!letter && !(*s >= '0' && *s <= '9') && *s != '_')
			return 0;
	}
	return 1;
}

#define NM_PARSE_FAIL(...) \
	do { \
		snprintf(err, NM_ERRBUF_SIZE, __VA_ARGS__); \
		errno = EINVAL; \
		return -1; \
	} while (0)

/* Returns the number at *p, at most `most`, and advances *p past it. -1 if there is none. */
static inline long
nm_parse_number(const char **p, long most)
{
	char *end;
	long n;

	if (**p < '0' || **p > '9')
		return -1;
	n = strtol(*p, &end, 10);
	if (n < 0 || n > most)
		return -1;
	*p = end;
	return n;
}

/* Parses the flags after '/'. */
static inline int
nm_parse_flags(const char **p, uint32_t *nr_flags, char *err)
{
	for (; **p && **p != '@'; (*p)++) {
		switch (**p) {
		case 'x': *nr_flags |= NR_EXCLUSIVE; break;
		case 'z': *nr_flags |= NR_ZCOPY_MON; break;
		case 't': *nr_flags |= NR_MONITOR_TX; break;
		case 'r': *nr_flags |= NR_MONITOR_RX; break;
		case 'R': *nr_flags |= NR_RX_RINGS_ONLY; break;
		case 'T': *nr_flags |= NR_TX_RINGS_ONLY; break;
		default: NM_PARSE_FAIL("unrecognized flag: '%c'", **p);
		}
	}
	if ((*nr_flags & NR_ZCOPY_MON) && !(*nr_flags & (NR_MONITOR_TX | NR_MONITOR_RX)))
		*nr_flags |= NR_MONITOR_TX | NR_MONITOR_RX;
	return 0;
}

static int
nm_parse(const char *ifname, struct nm_desc *d, char *err)
{
	const char *p, *name = ifname, *colon;
	uint32_t mode = NR_REG_ALL_NIC, nr_flags = 0;
	long ring = 0, id;
	size_t len;

	if (strncmp(ifname, "netmap:", 7) == 0) {
		name = ifname + 7;
		p = name;
	} else if (strncmp(ifname, NM_BDG_NAME, 4) == 0) {
		colon = strchr(ifname, ':');
		if (colon == NULL || !nm_is_identifier(ifname, colon))
			NM_PARSE_FAIL("invalid switch name in '%s', expected valeX:port", ifname);
		p = colon + 1;
	} else {
		NM_PARSE_FAIL("invalid port name '%s', expected netmap:... or valeX:...", ifname);
	}
	p += strcspn(p, "-*^{}/@");
	if (*p == '{' || *p == '}') /* the end of a pipe belongs to the name */
		p += 1 + strcspn(p + 1, "-*^/@");
	len = (size_t)(p - name);
	if (len == 0 || len >= sizeof(d->req.nr_name))
		NM_PARSE_FAIL("name of '%s' is empty or longer than %d characters", ifname,
			      (int)sizeof(d->req.nr_name) - 1);
	memset(d->req.nr_name, 0, sizeof(d->req.nr_name));
	memcpy(d->req.nr_name, name, len);
	while (*p) {
		switch (*p++) {
		case '-':
			mode = NR_REG_ONE_NIC;
			if ((ring = nm_parse_number(&p, NETMAP_RING_MASK)) < 0)
				NM_PARSE_FAIL("expected a ring number behind '-' in '%s'", ifname);
			break;
		case '^':
			mode = NR_REG_SW;
			if (*p >= '0' && *p <= '9') {
				mode = NR_REG_ONE_SW;
				ring = nm_parse_number(&p, NETMAP_RING_MASK);
			}
			break;
		case '*':
			mode = NR_REG_NIC_SW;
			break;
		case '@':
			if ((id = nm_parse_number(&p, 65535)) < 0)
				NM_PARSE_FAIL("expected a region number behind '@' in '%s'", ifname);
			d->req.nr_arg2 = (uint16_t)id;
			break;
		case '/':
			if (nm_parse_flags(&p, &nr_flags, err))
				return -1;
			break;
		default:
			NM_PARSE_FAIL("unexpected '%c' in '%s'", p[-1], ifname);
		}
	}
	if (ring < 0)
		NM_PARSE_FAIL("ring number too large in '%s'", ifname);
	d->req.nr_ringid = (uint16_t)ring;
	d->req.nr_flags = mode | nr_flags;
	return 0;
}

/* Sets the rings to which this descriptor is bound. */
static inline void
nm_bound_rings(struct nm_desc *d)
{
	uint16_t tx = d->req.nr_tx_rings, rx = d->req.nr_rx_rings, one;
	uint32_t mode = d->req.nr_flags & NR_REG_MASK;
	uint16_t host_tx = (uint16_t)d->nifp->ni_host_tx_rings, host_rx = (uint16_t)d->nifp->ni_host_rx_rings;

	d->first_tx_ring = d->first_rx_ring = 0;
	d->last_tx_ring = (uint16_t)(tx - 1);
	d->last_rx_ring = (uint16_t)(rx - 1);
	one = d->req.nr_ringid & NETMAP_RING_MASK;
	switch (mode) {
	case NR_REG_ONE_NIC:
		d->first_tx_ring = d->last_tx_ring = d->first_rx_ring = d->last_rx_ring = one;
		break;
	case NR_REG_SW:
		d->first_tx_ring = tx;
		d->first_rx_ring = rx;
		d->last_tx_ring = (uint16_t)(tx + host_tx - 1);
		d->last_rx_ring = (uint16_t)(rx + host_rx - 1);
		break;
	case NR_REG_NIC_SW:
		d->last_tx_ring = (uint16_t)(tx + host_tx - 1);
		d->last_rx_ring = (uint16_t)(rx + host_rx - 1);
		break;
	case NR_REG_ONE_SW:
		d->first_tx_ring = d->last_tx_ring = (uint16_t)(tx + one);
		d->first_rx_ring = d->last_rx_ring = (uint16_t)(rx + one);
		break;
	default:
		break;
	}
	d->cur_tx_ring = d->first_tx_ring;
	d->cur_rx_ring = d->first_rx_ring;
}

static struct nm_desc *
nm_open(const char *ifname, const struct nmreq *req, uint64_t new_flags, const struct nm_desc *arg)
{
	const struct nm_desc *parent = arg;
	uint32_t nr_flags;
	struct nm_desc *d;
	int saved;

	d = (struct nm_desc *)calloc(1, sizeof(*d));
	if (d == NULL) {
		errno = ENOMEM;
		return NULL;
	}
	d->self = d;
	d->fd = -1;
	if (req)
		d->req = *req;
	if (!(new_flags & NM_OPEN_IFNAME)) {
		if (nm_parse(ifname, d, d->msg) < 0) {
			if (!parent || !parent->errbuf)
				D("%s", d->msg);
			goto fail;
		}
	} else if (parent) {
		memcpy(d->req.nr_name, parent->req.nr_name, sizeof(d->req.nr_name));
		d->req.nr_flags = parent->req.nr_flags;
		d->req.nr_ringid = parent->req.nr_ringid;
	}
	d->req.nr_version = NETMAP_API;
	d->req.nr_ringid |= (uint16_t)(new_flags & (NETMAP_NO_TX_POLL | NETMAP_DO_RX_POLL));
	/* A mode in the low bits replaces that of the name; other bits are added. */
	nr_flags = (uint32_t)new_flags & ~(uint32_t)(NM_OPEN_NO_MMAP | NM_OPEN_IFNAME | NM_OPEN_ARG1 | NM_OPEN_ARG2 |
						     NM_OPEN_ARG3 | NM_OPEN_RING_CFG | NETMAP_NO_TX_POLL |
						     NETMAP_DO_RX_POLL);
	if (nr_flags & NR_REG_MASK)
		d->req.nr_flags = (d->req.nr_flags & ~(uint32_t)NR_REG_MASK) | (nr_flags & NR_REG_MASK);
	d->req.nr_flags |= nr_flags & ~(uint32_t)NR_REG_MASK;
	if (parent) {
		if (new_flags & NM_OPEN_ARG1)
			d->req.nr_arg1 = parent->req.nr_arg1;
		if (new_flags & NM_OPEN_ARG2)
			d->req.nr_arg2 = parent->req.nr_arg2;
		if (new_flags & NM_OPEN_ARG3)
			d->req.nr_arg3 = parent->req.nr_arg3;
		if (new_flags & NM_OPEN_RING_CFG) {
			d->req.nr_tx_slots = parent->req.nr_tx_slots;
			d->req.nr_rx_slots = parent->req.nr_rx_slots;
			d->req.nr_tx_rings = parent->req.nr_tx_rings;
			d->req.nr_rx_rings = parent->req.nr_rx_rings;
		}
	}
	d->fd = open("/dev/netmap", O_RDWR);
	if (d->fd < 0)
		goto fail;
	if (ioctl(d->fd, NIOCREGIF, &d->req))
		goto fail;
	d->memsize = d->req.nr_memsize;
	if (!(new_flags & NM_OPEN_NO_MMAP) || parent) {
		if (nm_mmap(d, parent))
			goto fail;
		nm_bound_rings(d);
	}
	return d;

fail:
	saved = errno;
	nm_close(d);
	errno = saved;
	return NULL;
}

static int
nm_close(struct nm_desc *d)
{
	if (d == NULL || d->self != d)
		return EINVAL;
	if (d->done_mmap && d->mem)
		munmap(d->mem, d->memsize);
	if (d->fd != -1)
		close(d->fd);
	memset((void *)d, 0, sizeof(*d));
	free(d);
	return 0;
}

static int
nm_mmap(struct nm_desc *d, const struct nm_desc *parent)
{
	struct netmap_if *nifp;
	struct netmap_ring *r = NULL;
	uint32_t i, all;

	if (d->done_mmap)
		return 0;
	if (parent && parent->mem && parent->mem != MAP_FAILED && parent->req.nr_arg2 == d->req.nr_arg2) {
		d->mem = parent->mem;
		d->memsize = parent->memsize;
	} else {
		d->mem = mmap(NULL, d->memsize, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
		if (d->mem == MAP_FAILED) {
			d->mem = NULL;
			return EINVAL;
		}
		d->done_mmap = 1;
	}
	nifp = NETMAP_IF(d->mem, d->req.nr_offset);
	*(struct netmap_if **)(uintptr_t)&d->nifp = nifp;
	all = nifp->ni_tx_rings + nifp->ni_host_tx_rings + nifp->ni_rx_rings + nifp->ni_host_rx_rings;
	for (i = 0; i < all && r == NULL; i++) {
		if (nifp->ring_ofs[i])
			r = NETMAP_TXRING(nifp, i);
	}
	if (r != NULL) {
		*(struct netmap_ring **)(uintptr_t)&d->some_ring = r;
		*(void **)(uintptr_t)&d->buf_start = NETMAP_BUF(r, 0);
		*(void **)(uintptr_t)&d->buf_end = (char *)d->mem + d->memsize;
	}
	return 0;
}

static int
nm_inject(struct nm_desc *d, const void *buf, size_t size)
{
	u_int c, n = (u_int)(d->last_tx_ring - d->first_tx_ring) + 1, ri = d->cur_tx_ring;

	for (c = 0; c < n; c++, ri++) {
		struct netmap_ring *ring;
		uint32_t i, more = 1;
		const char *src = (const char *)buf;
		size_t left = size;

		if (ri > d->last_tx_ring)
			ri = d->first_tx_ring;
		ring = NETMAP_TXRING(d->nifp, ri);
		for (i = ring->head; more && i != ring->tail; i = nm_ring_next(ring, i)) {
			struct netmap_slot *slot = &ring->slot[i];
			uint64_t ofs = NETMAP_ROFFSET(ring, slot);
			size_t room = ofs < ring->nr_buf_size ? ring->nr_buf_size - (size_t)ofs : 0;
			size_t part = left < room ? left : room;

			memcpy(NETMAP_BUF_OFFSET(ring, slot), src, part);
			src += part;
			left -= part;
			more = left > 0;
			slot->len = (uint16_t)part;
			slot->flags = more ? NS_MOREFRAG : 0;
		}
		if (more)
			continue;
		ring->head = ring->cur = i;
		d->cur_tx_ring = (uint16_t)ri;
		return (int)size;
	}
	return 0;
}

/* Fills the header for the frame at the ring's head. Returns its number of slots; 0 while the frame is incomplete. */
static inline uint32_t
nm_frame_at(struct nm_desc *d, struct netmap_ring *ring, uint32_t i, struct nm_pkthdr *h)
{
	uint32_t slots = 0, tail = ring->tail;

	h->slot = &ring->slot[i];
	h->buf = (uint8_t *)NETMAP_BUF_OFFSET(ring, h->slot);
	h->len = h->caplen = 0;
	h->d = d;
	h->ts = ring->ts;
	while (i != tail) {
		struct netmap_slot *slot = &ring->slot[i];

		h->len += slot->len;
		if (slots == 0)
			h->caplen = slot->len;
		slots++;
		i = nm_ring_next(ring, i);
		if (!(slot->flags & NS_MOREFRAG)) {
			h->flags = i != tail ? NM_MORE_PKTS : 0;
			return slots;
		}
	}
	return 0;
}

static inline uint32_t
nm_skip_slots(struct netmap_ring *ring, uint32_t i, uint32_t slots)
{
	i += slots;
	return i >= ring->num_slots ? i - ring->num_slots : i;
}

static int
nm_dispatch(struct nm_desc *d, int cnt, nm_cb_t cb, u_char *arg)
{
	u_int c, n = (u_int)(d->last_rx_ring - d->first_rx_ring) + 1, ri = d->cur_rx_ring;
	int got = 0;

	if (cnt <= 0)
		cnt = -1;
	for (c = 0; c < n && cnt != got; c++, ri++) {
		struct netmap_ring *ring;

		if (ri > d->last_rx_ring)
			ri = d->first_rx_ring;
		d->cur_rx_ring = (uint16_t)ri;
		ring = NETMAP_RXRING(d->nifp, ri);
		while (!nm_ring_empty(ring) && cnt != got) {
			uint32_t slots = nm_frame_at(d, ring, ring->head, &d->hdr);

			if (slots == 0)
				break;
			got++;
			cb(arg, &d->hdr, d->hdr.buf);
			ring->head = ring->cur = nm_skip_slots(ring, ring->head, slots);
		}
	}
	return got;
}

static u_char *
nm_nextpkt(struct nm_desc *d, struct nm_pkthdr *hdr)
{
	u_int c, n = (u_int)(d->last_rx_ring - d->first_rx_ring) + 1, ri = d->cur_rx_ring;

	for (c = 0; c < n; c++, ri++) {
		struct netmap_ring *ring;
		uint32_t slots;

		if (ri > d->last_rx_ring)
			ri = d->first_rx_ring;
		ring = NETMAP_RXRING(d->nifp, ri);
		/* The frame of the last call is before cur; only now is its slot returned. */
		ring->head = ring->cur;
		if (ring->cur == ring->tail)
			continue;
		slots = nm_frame_at(d, ring, ring->cur, hdr);
		if (slots == 0)
			continue;
		ring->cur = nm_skip_slots(ring, ring->cur, slots);
		d->cur_rx_ring = (uint16_t)ri;
		return hdr->buf;
	}
	return NULL;
}

#undef NM_PARSE_FAIL
#undef NM_LIB

#endif /* NETMAP_WITH_LIBS */

#endif /* _NET_NETMAP_USER_H_ */
