// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The rings. Three ways to tell the card of packets: TDT for each, TDT when
 * the card has reported what it had (Send Combining), and the status block,
 * with TDT only when the card sleeps.
 *
 * What the host writes is checked before it is used.
 */
#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <net/ip6_checksum.h>
#include <net/tcp.h>

#include "nve1000.h"

static u32 nve_tx_free(const struct nve *ne)
{
	return (ne->tx.done - ne->tx.next - 1) & (ne->slots - 1);
}

static u32 nve_tx_waiting(const struct nve *ne)
{
	return (ne->tx.next - ne->tx.told) & (ne->slots - 1);
}

/* The first descriptor that the card is not done with. */
static u32 nve_tx_head(struct nve *ne)
{
	struct nve_tx *tx = &ne->tx;
	u32 head = tx->done;

	if (ne->csb) {
		u32 at = le32_to_cpu(READ_ONCE(ne->csb->tx_host.hwcur));
		u32 used = (tx->next - tx->done) & (ne->slots - 1);

		if (at < ne->slots &&
		    ((at - tx->done) & (ne->slots - 1)) <= used)
			head = at;
	} else {
		/* Only the last descriptor of each packet is written back. */
		u32 i;

		for (i = tx->done; i != tx->told; i = nve_ahead(ne, i, 1)) {
			__le64 word = READ_ONCE(tx->ring[i].word);

			if (!tx->notes[i].skb)
				continue;
			if (!(le64_to_cpu(word) & NVE_DD))
				break;
			head = nve_ahead(ne, i, 1);
		}
	}
	dma_rmb();
	return head;
}

static void nve_tx_unmap(struct nve *ne, struct nve_tx_note *note)
{
	if (note->len && note->page)
		dma_unmap_page(&ne->pdev->dev, note->addr, note->len,
			       DMA_TO_DEVICE);
	else if (note->len)
		dma_unmap_single(&ne->pdev->dev, note->addr, note->len,
				 DMA_TO_DEVICE);
	note->len = 0;
}

/* Frees what is sent. Under the queue's lock. */
static void nve_tx_clean(struct nve *ne, int budget)
{
	struct nve_tx *tx = &ne->tx;
	u32 head = nve_tx_head(ne);
	u32 packets = 0, bytes = 0;

	while (tx->done != head) {
		struct nve_tx_note *note = &tx->notes[tx->done];

		nve_tx_unmap(ne, note);
		if (note->skb) {
			packets++;
			bytes += note->skb->len;
			napi_consume_skb(note->skb, budget);
			note->skb = NULL;
		}
		tx->done = nve_ahead(ne, tx->done, 1);
	}
	if (!packets)
		return;
	u64_stats_update_begin(&tx->stats.sync);
	tx->stats.packets += packets;
	tx->stats.bytes += bytes;
	u64_stats_update_end(&tx->stats.sync);
	if (!ne->csb)
		netdev_completed_queue(ne->netdev, packets, bytes);
}

void nve_tx_drop_all(struct nve *ne)
{
	struct nve_tx *tx = &ne->tx;
	u32 i;

	for (i = 0; i < ne->slots; i++) {
		nve_tx_unmap(ne, &tx->notes[i]);
		dev_kfree_skb(tx->notes[i].skb);
		tx->notes[i].skb = NULL;
	}
}

static void nve_tx_tell(struct nve *ne)
{
	ne->tx.told = ne->tx.next;
	ne->tx.pending = true;
	ne->kicks++;
	nve_write(ne, NVE_TDT, ne->tx.next);
}

/* Packets are in the ring: tells the card, if and when it has to be told. */
static void nve_tx_publish(struct nve *ne)
{
	struct nve_tx *tx = &ne->tx;

	if (!ne->csb) {
		/* An interrupt is coming: what waits goes then. */
		if (ne->combine && tx->pending &&
		    nve_tx_waiting(ne) < ne->combine)
			return;
		nve_tx_tell(ne);
		return;
	}
	/* Descriptors before the index, the index before the look. */
	dma_wmb();
	WRITE_ONCE(ne->csb->tx_guest.head, cpu_to_le32(tx->next));
	tx->told = tx->next;
	virt_mb();
	if (READ_ONCE(ne->csb->tx_host.need_kick))
		nve_tx_tell(ne);
}

static int nve_tx_map(struct nve *ne, u32 *at, void *head, skb_frag_t *frag,
		      u32 len, u64 command)
{
	struct device *dev = &ne->pdev->dev;
	struct nve_tx *tx = &ne->tx;
	dma_addr_t addr;
	u32 from;

	if (frag)
		addr = skb_frag_dma_map(dev, frag, 0, len, DMA_TO_DEVICE);
	else
		addr = dma_map_single(dev, head, len, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -ENOMEM;
	for (from = 0; from < len; from += NVE_PIECE) {
		struct nve_tx_note *note = &tx->notes[*at];
		u32 n = min_t(u32, len - from, NVE_PIECE);

		tx->ring[*at].addr = cpu_to_le64(addr + from);
		tx->ring[*at].word = cpu_to_le64(command | n);
		note->addr = addr;
		note->len = from + n == len ? len : 0;
		note->page = frag;
		*at = nve_ahead(ne, *at, 1);
	}
	return 0;
}

/* Headers whose checksums the card is to see to, and where it cuts. */
static u64 nve_tx_context(struct nve *ne, struct sk_buff *skb, u32 *at)
{
	struct skb_shared_info *info = skb_shinfo(skb);
	u64 start, sum, first = 0, second = NVE_TXD_DEXT;
	u64 todo = NVE_TXD_TXSM;

	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return 0;
	start = skb_checksum_start_offset(skb);
	sum = start + skb->csum_offset;
	first |= start << 32 | sum << 40;
	if (info->gso_size) {
		u64 net = skb_network_offset(skb);
		u64 headers = skb_tcp_all_headers(skb);

		todo |= NVE_TXD_TSE;
		second |= NVE_TXC_TCP | NVE_TXD_TSE;
		second |= headers << 40 | (u64)info->gso_size << 48;
		second |= (skb->len - headers) & 0xfffff;
		if (info->gso_type & SKB_GSO_TCPV4) {
			struct iphdr *ip = ip_hdr(skb);

			todo |= NVE_TXD_IXSM;
			second |= NVE_TXC_IPV4;
			first |= net | (net + offsetof(struct iphdr, check)) << 8;
			first |= (start - 1) << 16;
			ip->tot_len = 0;
			ip->check = 0;
			tcp_hdr(skb)->check = ~csum_tcpudp_magic(ip->saddr,
								 ip->daddr, 0,
								 IPPROTO_TCP,
								 0);
		} else {
			first |= net;
			tcp_v6_gso_csum_prep(skb);
		}
	}
	ne->tx.ring[*at].addr = cpu_to_le64(first);
	ne->tx.ring[*at].word = cpu_to_le64(second);
	ne->tx.notes[*at].len = 0;
	*at = nve_ahead(ne, *at, 1);
	return todo;
}

/* Descriptors of a packet. On failure none is the card's. */
static int nve_tx_fill(struct nve *ne, struct sk_buff *skb)
{
	struct nve_tx *tx = &ne->tx;
	u64 command = NVE_TXD_DATA | NVE_TXD_DEXT | NVE_TXD_IFCS;
	u32 at = tx->next, last;
	int i, err;

	/* The headers of what is cut are changed. */
	if (skb_is_gso(skb) && skb_cow_head(skb, 0))
		return -ENOMEM;
	command |= nve_tx_context(ne, skb, &at);
	err = nve_tx_map(ne, &at, skb->data, NULL, skb_headlen(skb), command);
	for (i = 0; !err && i < skb_shinfo(skb)->nr_frags; i++) {
		skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		err = nve_tx_map(ne, &at, NULL, frag, skb_frag_size(frag),
				 command);
	}
	if (err) {
		for (i = tx->next; i != at; i = nve_ahead(ne, i, 1))
			nve_tx_unmap(ne, &tx->notes[i]);
		return err;
	}
	last = nve_ahead(ne, at, ne->slots - 1);
	tx->ring[last].word |= cpu_to_le64(NVE_TXD_EOP | NVE_TXD_RS);
	tx->notes[last].skb = skb;
	tx->next = at;
	return 0;
}

/* Too few descriptors: the queue stops until the card is done with some. */
static void nve_tx_stop(struct nve *ne)
{
	netif_stop_queue(ne->netdev);
	if (ne->csb)
		WRITE_ONCE(ne->csb->tx_guest.need_kick, cpu_to_le32(1));
	virt_mb();
	nve_tx_clean(ne, 0);
	if (nve_tx_free(ne) < NVE_NEED)
		return;
	if (ne->csb)
		WRITE_ONCE(ne->csb->tx_guest.need_kick, 0);
	netif_start_queue(ne->netdev);
}

/*
 * Without interrupts for what is sent, packets are freed when there are others
 * to be sent, or now.
 */
static void nve_tidy_later(struct nve *ne)
{
	if (!timer_pending(&ne->tidy))
		mod_timer(&ne->tidy, jiffies + 1);
}

void nve_tidy(struct timer_list *timer)
{
	struct nve *ne = container_of(timer, struct nve, tidy);

	napi_schedule(&ne->napi);
}

netdev_tx_t nve_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct nve *ne = netdev_priv(netdev);
	bool more = netdev_xmit_more();
	u32 len;

	if (ne->csb && nve_tx_free(ne) < ne->slots / 2)
		nve_tx_clean(ne, 0);
	if (eth_skb_pad(skb)) {
		ne->tx.stats.dropped++;
		goto out;
	}
	len = skb->len;
	if (nve_tx_fill(ne, skb)) {
		ne->tx.stats.dropped++;
		dev_kfree_skb_any(skb);
		goto out;
	}
	if (ne->csb) {
		/* It is freed later than it is sent: nobody waits for that. */
		skb_orphan(skb);
		nf_reset_ct(skb);
		nve_tidy_later(ne);
	} else {
		more = !__netdev_tx_sent_queue(netdev_get_tx_queue(netdev, 0),
					       len, more);
	}
	if (nve_tx_free(ne) < NVE_NEED)
		nve_tx_stop(ne);
out:
	if (!more || netif_queue_stopped(netdev))
		if (nve_tx_waiting(ne))
			nve_tx_publish(ne);
	return NETDEV_TX_OK;
}

/* What was sent is cleaned up, what waited is sent. */
static void nve_tx_poll(struct nve *ne, int budget)
{
	struct netdev_queue *queue = netdev_get_tx_queue(ne->netdev, 0);

	__netif_tx_lock(queue, smp_processor_id());
	nve_tx_clean(ne, budget);
	if (!ne->csb) {
		ne->tx.pending = ne->tx.done != ne->tx.told;
		if (!ne->tx.pending && nve_tx_waiting(ne))
			nve_tx_tell(ne);
	}
	if (netif_queue_stopped(ne->netdev) && ne->csb &&
	    nve_tx_free(ne) < NVE_NEED) {
		WRITE_ONCE(ne->csb->tx_guest.need_kick, cpu_to_le32(1));
		virt_mb();
		nve_tx_clean(ne, budget);
	}
	if (ne->csb && ne->tx.done != ne->tx.next)
		nve_tidy_later(ne);
	if (netif_queue_stopped(ne->netdev) && nve_tx_free(ne) >= NVE_NEED) {
		if (ne->csb)
			WRITE_ONCE(ne->csb->tx_guest.need_kick, 0);
		netif_wake_queue(ne->netdev);
	}
	__netif_tx_unlock(queue);
}

/* Descriptors behind `next` that hold frames, whole or not. */
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

/* A frame of `count` descriptors into an skb. */
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

/* The next frame, of `ready` descriptors. Returns how many it had. */
static u32 nve_rx_one(struct nve *ne, u32 ready)
{
	struct nve_rx *rx = &ne->rx;
	struct sk_buff *skb = NULL;
	u32 count, len = 0;
	u64 word = 0;

	for (count = 0; count < ready && !(word & NVE_RXD_EOP); count++) {
		u32 i = nve_ahead(ne, rx->next, count);

		word = le64_to_cpu(READ_ONCE(rx->ring[i].word));
		/* Only a last piece is shorter than a buffer. */
		if (!(word & NVE_RXD_EOP))
			len += NVE_BUF;
	}
	/* The rest of it is not there yet, unless the ring has no more. */
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

/* Gives buffers back: by register only when there are many. */
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
	/* The host publishes, then looks at need_kick; we the other way. */
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
