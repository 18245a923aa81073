/*
 * netmap's binary interface, version 14, as netvale implements it.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * A program's view after open("/dev/netmap"), NIOCCTRL/REGISTER and mmap():
 *
 *   region ┌──────────────┐
 *          │ netmap_if    │ at nr_offset: ring_ofs[] has the offsets of the rings, 0 for rings that are not bound
 *          ├──────────────┤
 *          │ netmap_ring  │ head, cur, tail, then slot[num_slots]
 *          ├──────────────┤
 *          │ buffers      │ buffer i is at (char *)ring + buf_ofs + i * nr_buf_size; 0 and 1 are reserved
 *          └──────────────┘
 *
 * Slots from head up to tail-1 belong to the program: to fill on a tx ring, to read on an rx ring. The program moves head past finished
 * slots and syncs (ioctl or poll); the sync moves tail. A poll wakes the program when tail has moved past cur.
 * A ring that violates head <= cur <= tail (around the ring) is reset to the host's indices.
 */
#ifndef _NET_NETMAP_H_
#define _NET_NETMAP_H_

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/types.h>

#define NETMAP_API 14
#define NETMAP_MIN_API 14
#define NETMAP_MAX_API 15

#define NM_CACHE_ALIGN 128

/* ---- slots ---- */

struct netmap_slot {
	uint32_t buf_idx; /* the buffer */
	uint16_t len;     /* bytes of this part of the frame */
	uint16_t flags;   /* NS_* */
	uint64_t ptr;     /* with NS_INDIRECT: address of the bytes; with offsets: offset in the buffer */
};

#define NS_BUF_CHANGED 0x0001 /* the program has put another buffer into the slot */
#define NS_REPORT 0x0002      /* report when this slot has been sent */
#define NS_FORWARD 0x0004     /* pass the frame to the other side: NIC to host stack or back */
#define NS_NO_LEARN 0x0008    /* a switch must not learn the source address */
#define NS_INDIRECT 0x0010    /* ptr points to the bytes */
#define NS_MOREFRAG 0x0020    /* the frame continues in the next slot */
#define NS_TXMON 0x0040       /* set by a monitor on frames that were sent */
#define NS_PORT_SHIFT 8
#define NS_PORT_MASK (0xff << NS_PORT_SHIFT)
#define NS_RFRAGS(_slot) (((_slot)->flags >> 8) & 0xff)

#define NETMAP_MAX_FRAGS 64 /* maximum of slots of a frame */

/* ---- rings ---- */

struct netmap_ring {
	const int64_t buf_ofs;      /* offset of buffer 0 from this structure */
	const uint32_t num_slots;
	const uint32_t nr_buf_size; /* buffer size in bytes */
	const uint16_t ringid;
	const uint16_t dir; /* 0 tx, 1 rx */

	uint32_t head; /* set by the program: the first slot that belongs to it */
	uint32_t cur;  /* set by the program: wake-up point */
	uint32_t tail; /* set by the host: the first slot that does not belong to the program */

	uint32_t flags; /* NR_TIMESTAMP, NR_FORWARD */
	struct timeval ts; /* time of the last sync, with NR_TIMESTAMP */
	const uint64_t offset_mask; /* bits of a slot's ptr that are its offset; 0: no offsets */
	const uint64_t buf_align;

#if !defined(_WIN32) || defined(__CYGWIN__)
	uint8_t __attribute__((__aligned__(NM_CACHE_ALIGN))) sem[128]; /* for the program, e.g. for a lock */
#endif
	struct netmap_slot slot[0];
};

#define NR_TIMESTAMP 0x0002 /* write ts at each sync */
#define NR_FORWARD 0x0004   /* honour NS_FORWARD */

/* The slot's bytes begin at this offset in its buffer. */
#define NETMAP_ROFFSET(_ring, _slot) ((_slot)->ptr & (_ring)->offset_mask)
#define NETMAP_WOFFSET(_ring, _slot, _offset) \
	do { (_slot)->ptr = ((_slot)->ptr & ~(_ring)->offset_mask) | (_offset); } while (0)
#define NETMAP_BUF_OFFSET(_ring, _slot) (NETMAP_BUF(_ring, (_slot)->buf_idx) + NETMAP_ROFFSET(_ring, _slot))

/* ---- interfaces ---- */

struct netmap_if {
	char ni_name[16];
	const uint32_t ni_version; /* NETMAP_API */
	const uint32_t ni_flags;
#define NI_PRIV_MEM 0x1
	const uint32_t ni_tx_rings;
	const uint32_t ni_rx_rings;
	uint32_t ni_bufs_head; /* first extra buffer; each begins with the index of the next, 0 ends the list */
	const uint32_t ni_host_tx_rings;
	const uint32_t ni_host_rx_rings;
	uint32_t ni_spare1[3];
	const ssize_t ring_ofs[0]; /* tx, host tx, rx, host rx; relative to this structure */
};

/* ---- control: NIOCCTRL ---- */

#define NETMAP_REQ_IFNAMSIZ 64
#define NETMAP_REQ_MAXSIZE 4096

struct nmreq_header {
	uint16_t nr_version; /* NETMAP_API */
	uint16_t nr_reqtype; /* NETMAP_REQ_* */
	uint32_t nr_reserved;
	char nr_name[NETMAP_REQ_IFNAMSIZ];
	uint64_t nr_options; /* address of the first struct nmreq_option */
	uint64_t nr_body;    /* address of the request's own structure */
};

enum {
	NETMAP_REQ_REGISTER = 1,
	NETMAP_REQ_PORT_INFO_GET,
	NETMAP_REQ_VALE_ATTACH,
	NETMAP_REQ_VALE_DETACH,
	NETMAP_REQ_VALE_LIST,
	NETMAP_REQ_PORT_HDR_SET,
	NETMAP_REQ_PORT_HDR_GET,
	NETMAP_REQ_VALE_NEWIF,
	NETMAP_REQ_VALE_DELIF,
	NETMAP_REQ_VALE_POLLING_ENABLE,
	NETMAP_REQ_VALE_POLLING_DISABLE,
	NETMAP_REQ_POOLS_INFO_GET,
	NETMAP_REQ_SYNC_KLOOP_START,
	NETMAP_REQ_SYNC_KLOOP_STOP,
	NETMAP_REQ_CSB_ENABLE
};

enum {
	NETMAP_REQ_OPT_EXTMEM = 1,
	NETMAP_REQ_OPT_SYNC_KLOOP_EVENTFDS,
	NETMAP_REQ_OPT_CSB,
	NETMAP_REQ_OPT_SYNC_KLOOP_MODE,
	NETMAP_REQ_OPT_OFFSETS,
	NETMAP_REQ_OPT_MAX
};

struct nmreq_option {
	uint64_t nro_next; /* address of the next option */
	uint32_t nro_reqtype;
	uint32_t nro_status; /* out: 0 or an errno */
	uint64_t nro_size;   /* size of the whole option, if its type does not imply it */
};

/* REGISTER: binds rings of a port to the descriptor. Zero requests the default; the granted values are written back. */
struct nmreq_register {
	uint64_t nr_offset;  /* out: of the netmap_if in the region */
	uint64_t nr_memsize; /* out: bytes to mmap */
	uint32_t nr_tx_slots;
	uint32_t nr_rx_slots;
	uint16_t nr_tx_rings;
	uint16_t nr_rx_rings;
	uint16_t nr_host_tx_rings;
	uint16_t nr_host_rx_rings;
	uint16_t nr_mem_id;
	uint16_t nr_ringid; /* with NR_REG_ONE_NIC, NR_REG_ONE_SW */
	uint32_t nr_mode;   /* NR_REG_* */
	uint32_t nr_extra_bufs;
	uint32_t pad1;
	uint64_t nr_flags; /* NR_* */
};

enum {
	NR_REG_DEFAULT = 0, /* legacy requests only */
	NR_REG_ALL_NIC = 1,
	NR_REG_SW = 2,
	NR_REG_NIC_SW = 3,
	NR_REG_ONE_NIC = 4,
	NR_REG_PIPE_MASTER = 5, /* the same as name{N */
	NR_REG_PIPE_SLAVE = 6,
	NR_REG_NULL = 7, /* memory only */
	NR_REG_ONE_SW = 8
};

#define NR_MONITOR_TX 0x100
#define NR_MONITOR_RX 0x200
#define NR_ZCOPY_MON 0x400
#define NR_EXCLUSIVE 0x800 /* refuse other bindings of the rings */
#define NR_RX_RINGS_ONLY 0x2000
#define NR_TX_RINGS_ONLY 0x4000
#define NR_ACCEPT_VNET_HDR 0x8000 /* the program supports virtio-net headers */
#define NR_DO_RX_POLL 0x10000     /* poll syncs rx rings also without POLLIN */
#define NR_NO_TX_POLL 0x20000     /* poll pushes tx rings only with POLLOUT */

#define NM_BDG_NAME "vale" /* prefix of a switch's name */

struct nmreq_port_info_get {
	uint64_t nr_memsize;
	uint32_t nr_tx_slots;
	uint32_t nr_rx_slots;
	uint16_t nr_tx_rings;
	uint16_t nr_rx_rings;
	uint16_t nr_host_tx_rings;
	uint16_t nr_host_rx_rings;
	uint16_t nr_mem_id;
	uint16_t pad[3];
};

struct nmreq_vale_attach {
	struct nmreq_register reg;
	uint32_t port_index; /* out */
	uint32_t pad1;
};

struct nmreq_vale_detach {
	uint32_t port_index; /* out */
	uint32_t pad1;
};

/* VALE_LIST: without a name, returns the first port at or after these indices; with one, the port's indices. */
struct nmreq_vale_list {
	uint16_t nr_bridge_idx;
	uint16_t pad1;
	uint32_t nr_port_idx;
};

struct nmreq_port_hdr {
	uint32_t nr_hdr_len; /* 0, 10 or 12 */
	uint32_t pad1;
};

struct nmreq_vale_newif {
	uint32_t nr_tx_slots;
	uint32_t nr_rx_slots;
	uint16_t nr_tx_rings;
	uint16_t nr_rx_rings;
	uint16_t nr_mem_id;
	uint16_t pad1;
};

struct nmreq_vale_polling {
	uint32_t nr_mode;
#define NETMAP_POLLING_MODE_SINGLE_CPU 1
#define NETMAP_POLLING_MODE_MULTI_CPU 2
	uint32_t nr_first_cpu_id;
	uint32_t nr_num_polling_cpus;
	uint32_t pad1;
};

struct nmreq_pools_info {
	uint64_t nr_memsize;
	uint16_t nr_mem_id;
	uint16_t pad1[3];
	uint64_t nr_if_pool_offset;
	uint32_t nr_if_pool_objtotal;
	uint32_t nr_if_pool_objsize;
	uint64_t nr_ring_pool_offset;
	uint32_t nr_ring_pool_objtotal;
	uint32_t nr_ring_pool_objsize;
	uint64_t nr_buf_pool_offset;
	uint32_t nr_buf_pool_objtotal;
	uint32_t nr_buf_pool_objsize;
};

/* SYNC_KLOOP_START blocks and syncs through the CSB until another thread requests SYNC_KLOOP_STOP. */
struct nmreq_sync_kloop_start {
	uint32_t sleep_us; /* pause between rounds without eventfds */
	uint32_t pad1;
};

/* ---- options ---- */

/* The region replaces the program's own memory. */
struct nmreq_opt_extmem {
	struct nmreq_option nro_opt;
	uint64_t nro_usrptr; /* page-aligned shared memory */
	struct nmreq_pools_info nro_info; /* in: requested; out: granted */
};

/* Eventfds for a kloop, one pair per bound ring, tx rings first. nro_size includes them. */
struct nmreq_opt_sync_kloop_eventfds {
	struct nmreq_option nro_opt;
	struct {
		int32_t ioeventfd; /* the program kicks */
		int32_t irqfd;     /* the program is notified */
	} eventfds[0];
};

struct nmreq_opt_sync_kloop_mode {
	struct nmreq_option nro_opt;
#define NM_OPT_SYNC_KLOOP_DIRECT_TX 0x1
#define NM_OPT_SYNC_KLOOP_DIRECT_RX 0x2
	uint32_t mode;
	uint32_t pad1;
};

/* Communication status blocks, one pair per bound ring, tx rings first; 64-byte aligned. Needs NR_EXCLUSIVE. */
struct nm_csb_atok {
	uint32_t head;
	uint32_t cur;
	uint32_t appl_need_kick;
	uint32_t sync_flags;
	uint32_t pad[12];
};

struct nm_csb_ktoa {
	uint32_t hwcur;
	uint32_t hwtail;
	uint32_t kern_need_kick;
	uint32_t pad[13];
};

struct nmreq_opt_csb {
	struct nmreq_option nro_opt;
	uint64_t csb_atok; /* address of an array of struct nm_csb_atok */
	uint64_t csb_ktoa; /* address of an array of struct nm_csb_ktoa */
};

struct nmreq_opt_offsets {
	struct nmreq_option nro_opt;
	uint64_t nro_max_offset;
	uint64_t nro_initial_offset;
	uint32_t nro_offset_bits;
	uint32_t nro_tx_align;
	uint64_t nro_min_gap;
};

#ifdef __linux__
/* For a program in CSB mode: publish head and cur, read the loop's indices. */
#define nm_stst_barrier() __atomic_thread_fence(__ATOMIC_RELEASE)
#define nm_ldld_barrier() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define nm_stld_barrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)

static inline void
nm_sync_kloop_appl_write(struct nm_csb_atok *atok, uint32_t cur, uint32_t head)
{
	/* The loop reads head first: it must not see a head newer than cur. */
	__atomic_store_n(&atok->cur, cur, __ATOMIC_RELEASE);
	__atomic_store_n(&atok->head, head, __ATOMIC_RELEASE);
}

static inline void
nm_sync_kloop_appl_read(struct nm_csb_ktoa *ktoa, uint32_t *hwtail, uint32_t *hwcur)
{
	*hwtail = __atomic_load_n(&ktoa->hwtail, __ATOMIC_ACQUIRE);
	*hwcur = __atomic_load_n(&ktoa->hwcur, __ATOMIC_ACQUIRE);
}
#endif

/* Argument of NIOCCONFIG. */
#define NM_IFRDATA_LEN 256
struct nm_ifreq {
	char nifr_name[16];
	char data[NM_IFRDATA_LEN];
};

#include <net/netmap_legacy.h>

#define NIOCCTRL _IOWR('i', 151, struct nmreq_header)

#endif /* _NET_NETMAP_H_ */
