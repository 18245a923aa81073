/*
 * The requests that preceded NIOCCTRL, which nm_open() still uses. Included by net/netmap.h.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
#ifndef _NET_NETMAP_LEGACY_H_
#define _NET_NETMAP_LEGACY_H_

struct nmreq {
	char nr_name[16];
	uint32_t nr_version;
	uint32_t nr_offset;  /* out: of the netmap_if in the region */
	uint32_t nr_memsize; /* out: bytes to mmap */
	uint32_t nr_tx_slots;
	uint32_t nr_rx_slots;
	uint16_t nr_tx_rings;
	uint16_t nr_rx_rings;
	uint16_t nr_ringid;
#define NETMAP_HW_RING 0x4000
#define NETMAP_SW_RING 0x2000
#define NETMAP_RING_MASK 0x0fff
#define NETMAP_NO_TX_POLL 0x1000
#define NETMAP_DO_RX_POLL 0x8000
	uint16_t nr_cmd;
#define NETMAP_BDG_ATTACH 1
#define NETMAP_BDG_DETACH 2
#define NETMAP_BDG_REGOPS 3
#define NETMAP_BDG_LIST 4
#define NETMAP_BDG_VNET_HDR 5
#define NETMAP_BDG_OFFSET NETMAP_BDG_VNET_HDR
#define NETMAP_BDG_NEWIF 6
#define NETMAP_BDG_DELIF 7
#define NETMAP_PT_HOST_CREATE 8
#define NETMAP_PT_HOST_DELETE 9
#define NETMAP_BDG_POLLING_ON 10
#define NETMAP_BDG_POLLING_OFF 11
#define NETMAP_VNET_HDR_GET 12
	uint16_t nr_arg1;
#define NETMAP_BDG_HOST 1
	uint16_t nr_arg2; /* region, in and out */
	uint32_t nr_arg3; /* extra buffers: in: requested; out: granted */
	uint32_t nr_flags; /* NR_REG_* in the low bits, then NR_* */
#define NR_REG_MASK 0xf
	uint32_t spare2[1];
};

#define NIOCGINFO _IOWR('i', 145, struct nmreq)
#define NIOCREGIF _IOWR('i', 146, struct nmreq)
#define NIOCTXSYNC _IO('i', 148)
#define NIOCRXSYNC _IO('i', 149)
#define NIOCCONFIG _IOWR('i', 150, struct nm_ifreq)

#endif /* _NET_NETMAP_LEGACY_H_ */
