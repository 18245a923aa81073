/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef NVE1000_H
#define NVE1000_H

#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/u64_stats_sync.h>
#include <linux/workqueue.h>

#include "nve1000_hw.h"
#include "nvptnet_compat.h"

#define NVE_NAME "nve1000"

#define NVE_BUF		2048	/* a receive buffer */
#define NVE_MAX_MTU	9000
/* Maximum bytes of an skb in one descriptor. */
#define NVE_PIECE	16384
/* Descriptors an skb may need: head and fragments, split, and a context. */
#define NVE_NEED	(2 * (MAX_SKB_FRAGS + 1) + 6)

/* Counters of one direction; one writer at a time. */
struct nve_stats {
	struct u64_stats_sync sync;
	u64 packets;
	u64 bytes;
	u64 dropped;
};

/* Resources to release once a transmit descriptor is done. */
struct nve_tx_note {
	struct sk_buff *skb;	/* only at the last descriptor of an skb */
	dma_addr_t addr;
	u32 len;		/* 0: nothing is mapped */
	bool page;
};

struct nve_tx {
	struct nve_desc *ring;
	dma_addr_t dma;
	struct nve_tx_note *notes;
	u32 next;	/* first free descriptor */
	u32 done;	/* first descriptor that is not done */
	u32 told;	/* end of the descriptors announced to the card */
	u32 kicked;	/* last value written to TDT */
	bool on_way;	/* the card may not have seen that value yet */
	bool pending;	/* the card will report packets with an interrupt */
	struct nve_stats stats;
};

struct nve_rx {
	struct nve_desc *ring;
	dma_addr_t dma;
	struct page **pages;	/* each has two buffers */
	dma_addr_t *addrs;
	u32 next;	/* first descriptor to look at */
	u32 told;	/* last value written to RDT */
	struct nve_stats stats;
};

struct nve {
	struct pci_dev *pdev;
	struct net_device *netdev;
	void __iomem *regs;
	struct napi_struct napi;
	/* With a status block: frees sent packets when no others follow. */
	struct timer_list tidy;
	struct nve_tx tx;
	struct nve_rx rx;
	u32 slots;
	/* The status block; NULL without one. */
	struct nve_csb *csb;
	dma_addr_t csb_dma;
	bool msi;
	/* Maximum of packets that wait for others to be sent; 0: none wait. */
	u32 combine;
	u32 itr;		/* in units of 256 ns */
	struct work_struct link;
	struct work_struct again;
	u64 kicks;	/* writes to TDT and RDT */
	u64 interrupts;
};

static inline u32 nve_read(struct nve *ne, u32 at)
{
	return readl(ne->regs + at);
}

static inline void nve_write(struct nve *ne, u32 at, u32 value)
{
	writel(value, ne->regs + at);
}

static inline u32 nve_ahead(const struct nve *ne, u32 i, u32 by)
{
	return (i + by) & (ne->slots - 1);
}

/* nve1000_tx.c */
netdev_tx_t nve_xmit(struct sk_buff *skb, struct net_device *netdev);
void nve_tx_poll(struct nve *ne, int budget);
void nve_tx_drop_all(struct nve *ne);
void nve_tidy(struct timer_list *timer);

/* nve1000_rx.c */
int nve_rings_alloc(struct nve *ne);
void nve_rings_free(struct nve *ne);
void nve_rings_reset(struct nve *ne);
void nve_refill(struct nve *ne, bool all);
int nve_poll(struct napi_struct *napi, int budget);

#endif
