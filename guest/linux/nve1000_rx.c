// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The receive path, and functions for both rings. Frames are copied out of
 * buffers that stay mapped. Data from the host is checked before use.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>

#include "nve1000.h"

/* Number of descriptors from `next` on with frames, complete or not. */
static u32 nve_rx_ready(struct nve *ne)
{
	struct nve_rx *rx = &ne->rx;
	u32 most = (rx->told - rx->next) & (ne->slots - 1);
	u32 n = 0;

	if (ne->csb) {
		u32 at = le32_to_cpu(READ_ONCE(ne->csb->rx_host.hwtail));

		n = (at - rx->next) & (ne->slots - 1);
		if (at >= ne->slots || n > most)
			n = 0;
	} else {
		while (n < most) {
			u32 i = nve_ahead(ne, rx->next, n);

			if (!(le64_to_cpu(READ_ONCE(rx->ring[i].word)) & NVE_DD))
				break;
			n++;
		}
	}
	dma_rmb();
	return n;
}

static void *nve_rx_buffer(struct nve *ne, u32 i)
{
	return page_address(ne->rx.pages[i / 2]) + i % 2 * NVE_BUF;
}

static dma_addr_t nve_rx_addr(struct nve *ne, u32 i)
{
	return ne->rx.addrs[i / 2] + i % 2 * NVE_BUF;
}

/* Copies a frame of `count` descriptors into an skb. */
static struct sk_buff *nve_rx_copy(struct nve *ne, u32 count, u32 len)
{
	struct sk_buff *skb = napi_alloc_skb(&ne->napi, len);
	u32 k;

	for (k = 0; skb && k < count; k++) {
		u32 i = nve_ahead(ne, ne->rx.next, k);
		u32 n = min_t(u32, len - skb->len, NVE_BUF);

		dma_sync_single_for_cpu(&ne->pdev->dev, nve_rx_addr(ne, i), n,
					DMA_FROM_DEVICE);
		skb_put_data(skb, nve_rx_buffer(ne, i), n);
		dma_sync_single_for_device(&ne->pdev->dev, nve_rx_addr(ne, i), n,
					   DMA_FROM_DEVICE);
	}
	return skb;
}

/* Receives a frame from `ready` descriptors. Returns how many it used. */
static u32 nve_rx_one(struct nve *ne, u32 ready)
{
	struct nve_rx *rx = &ne->rx;
	struct sk_buff *skb = NULL;
	u32 count, len = 0;
	u64 word = 0;

	for (count = 0; count < ready && !(word & NVE_RXD_EOP); count++) {
		u32 i = nve_ahead(ne, rx->next, count);

		word = le64_to_cpu(READ_ONCE(rx->ring[i].word));
		/* Only the last piece of a frame is shorter than a buffer. */
		if (!(word & NVE_RXD_EOP))
			len += NVE_BUF;
	}
	/* The rest of the frame is missing, unless the ring is full. */
	if (!(word & NVE_RXD_EOP) && count < ne->slots - 1)
		return 0;
	len += min_t(u32, word & 0xffff, NVE_BUF);
	if (word & NVE_RXD_EOP && len >= ETH_HLEN &&
	    len <= NVE_MAX_MTU + ETH_HLEN + VLAN_HLEN)
		skb = nve_rx_copy(ne, count, len);
	u64_stats_update_begin(&rx->stats.sync);
	rx->stats.packets += !!skb;
	rx->stats.bytes += skb ? len : 0;
	rx->stats.dropped += !skb;
	u64_stats_update_end(&rx->stats.sync);
	if (skb) {
		skb->protocol = eth_type_trans(skb, ne->netdev);
		napi_gro_receive(&ne->napi, skb);
	}
	for (len = 0; len < count; len++)
		rx->ring[nve_ahead(ne, rx->next, len)].word = 0;
	rx->next = nve_ahead(ne, rx->next, count);
	return count;
}

/* Returns buffers to the card; writes the register only for many. */
void nve_refill(struct nve *ne, bool all)
{
	struct nve_rx *rx = &ne->rx;
	u32 told = nve_ahead(ne, rx->next, ne->slots - 1);
	u32 count = (told - rx->told) & (ne->slots - 1);

	if (!count)
		return;
	if (ne->csb) {
		dma_wmb();
		rx->told = told;
		WRITE_ONCE(ne->csb->rx_guest.head, cpu_to_le32(told));
	} else if (all || count >= ne->slots / 8) {
		rx->told = told;
		ne->kicks++;
		nve_write(ne, NVE_RDT, told);
	}
}

static int nve_rx_poll(struct nve *ne, int budget)
{
	u32 ready = nve_rx_ready(ne);
	int frames = 0;

	while (ready && frames < budget) {
		u32 count = nve_rx_one(ne, ready);

		if (!count)
			break;
		ready -= count;
		frames++;
	}
	nve_refill(ne, false);
	return frames;
}

int nve_poll(struct napi_struct *napi, int budget)
{
	struct nve *ne = container_of(napi, struct nve, napi);
	int frames;

	nve_tx_poll(ne, budget);
	frames = nve_rx_poll(ne, budget);
	if (frames == budget)
		return budget;
	if (!napi_complete_done(napi, frames))
		return frames;
	if (!ne->csb) {
		nve_write(ne, NVE_IMS, NVE_INT_ALL);
		return frames;
	}
	/* The host publishes, then reads need_kick; we do the reverse. */
	WRITE_ONCE(ne->csb->rx_guest.need_kick, cpu_to_le32(1));
	virt_mb();
	if (nve_rx_ready(ne) && napi_schedule_prep(napi)) {
		WRITE_ONCE(ne->csb->rx_guest.need_kick, 0);
		__napi_schedule(napi);
	}
	return frames;
}

void nve_rings_reset(struct nve *ne)
{
	u32 i;

	ne->tx.next = 0;
	ne->tx.done = 0;
	ne->tx.told = 0;
	ne->tx.on_way = false;
	ne->tx.pending = false;
	ne->rx.next = 0;
	ne->rx.told = 0;
	memset(ne->tx.ring, 0, ne->slots * sizeof(*ne->tx.ring));
	for (i = 0; i < ne->slots; i++) {
		ne->rx.ring[i].addr = cpu_to_le64(nve_rx_addr(ne, i));
		ne->rx.ring[i].word = 0;
	}
	netdev_reset_queue(ne->netdev);
}

static int nve_rx_alloc(struct nve *ne)
{
	struct device *dev = &ne->pdev->dev;
	struct nve_rx *rx = &ne->rx;
	u32 i;

	for (i = 0; i < ne->slots / 2; i++) {
		rx->pages[i] = alloc_page(GFP_KERNEL);
		if (!rx->pages[i])
			return -ENOMEM;
		rx->addrs[i] = dma_map_page(dev, rx->pages[i], 0, PAGE_SIZE,
					    DMA_FROM_DEVICE);
		if (dma_mapping_error(dev, rx->addrs[i])) {
			__free_page(rx->pages[i]);
			rx->pages[i] = NULL;
			return -ENOMEM;
		}
	}
	return 0;
}

int nve_rings_alloc(struct nve *ne)
{
	struct device *dev = &ne->pdev->dev;
	size_t bytes = ne->slots * sizeof(struct nve_desc);
	int err = -ENOMEM;

	ne->tx.ring = dma_alloc_coherent(dev, bytes, &ne->tx.dma, GFP_KERNEL);
	ne->rx.ring = dma_alloc_coherent(dev, bytes, &ne->rx.dma, GFP_KERNEL);
	ne->tx.notes = kvcalloc(ne->slots, sizeof(*ne->tx.notes), GFP_KERNEL);
	ne->rx.pages = kvcalloc(ne->slots / 2, sizeof(*ne->rx.pages),
				GFP_KERNEL);
	ne->rx.addrs = kvcalloc(ne->slots / 2, sizeof(*ne->rx.addrs),
				GFP_KERNEL);
	if (ne->tx.ring && ne->rx.ring && ne->tx.notes && ne->rx.pages &&
	    ne->rx.addrs)
		err = nve_rx_alloc(ne);
	if (err)
		nve_rings_free(ne);
	return err;
}

void nve_rings_free(struct nve *ne)
{
	struct device *dev = &ne->pdev->dev;
	size_t bytes = ne->slots * sizeof(struct nve_desc);
	u32 i;

	for (i = 0; ne->rx.pages && ne->rx.addrs && i < ne->slots / 2; i++) {
		if (!ne->rx.pages[i])
			break;
		dma_unmap_page(dev, ne->rx.addrs[i], PAGE_SIZE,
			       DMA_FROM_DEVICE);
		__free_page(ne->rx.pages[i]);
	}
	kvfree(ne->rx.addrs);
	kvfree(ne->rx.pages);
	kvfree(ne->tx.notes);
	if (ne->tx.ring)
		dma_free_coherent(dev, bytes, ne->tx.ring, ne->tx.dma);
	if (ne->rx.ring)
		dma_free_coherent(dev, bytes, ne->rx.ring, ne->rx.dma);
	memset(&ne->tx, 0, offsetof(struct nve_tx, stats));
	memset(&ne->rx, 0, offsetof(struct nve_rx, stats));
}
