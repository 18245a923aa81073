// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The transmit path. Packets are announced to the card in one of three ways:
 * by TDT for each packet, by TDT once the card has reported earlier packets
 * (Send Combining), or by the status block, with TDT only if the card sleeps.
 *
 * Data from the host is checked before use.
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

/* Returns the first descriptor that the card has not finished. */
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
		/* The card writes back the last descriptor of a packet. */
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

/* Frees sent packets. Under the queue's lock. */
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
	ne->tx.kicked = ne->tx.next;
	ne->tx.on_way = true;
	ne->tx.pending = true;
	ne->kicks++;
	nve_write(ne, NVE_TDT, ne->tx.next);
}

/*
 * Returns whether a kick is on its way: the card has not reached the index of
 * the last kick. It will take all packets there are by then, and checks again
 * before it sleeps. Called for each packet, so that indices cannot wrap around
 * unnoticed.
 */
static bool nve_tx_is_kicked(struct nve *ne)
{
	u32 mask = ne->slots - 1;
	u32 head, ahead;

	if (!ne->tx.on_way)
		return false;
	/* Position after sleep flag: the card writes them in reverse. */
	virt_rmb();
	head = le32_to_cpu(READ_ONCE(ne->csb->tx_host.hwcur));
	ahead = (ne->tx.kicked - head) & mask;
	ne->tx.on_way = ahead && ahead <= ((ne->tx.next - head) & mask);
	return ne->tx.on_way;
}

/* Announces packets in the ring to the card, if necessary now. */
static void nve_tx_publish(struct nve *ne)
{
	struct nve_tx *tx = &ne->tx;
	bool asleep;

	if (!ne->csb) {
		/* An interrupt will follow, which announces waiting packets. */
		if (ne->combine && tx->pending &&
		    nve_tx_waiting(ne) < ne->combine)
			return;
		nve_tx_tell(ne);
		return;
	}
	/* Descriptors before the index, the index before the check. */
	dma_wmb();
	WRITE_ONCE(ne->csb->tx_guest.head, cpu_to_le32(tx->next));
	tx->told = tx->next;
	virt_mb();
	asleep = READ_ONCE(ne->csb->tx_host.need_kick);
	if (!nve_tx_is_kicked(ne) && asleep)
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

/* Describes the headers for checksum and segmentation offload. */
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

/* Fills a packet's descriptors. On failure the card gets none. */
static int nve_tx_fill(struct nve *ne, struct sk_buff *skb)
{
	struct nve_tx *tx = &ne->tx;
	u64 command = NVE_TXD_DATA | NVE_TXD_DEXT | NVE_TXD_IFCS;
	u32 at = tx->next, last;
	int i, err;

	/* Segmentation modifies the headers. */
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

/* Stops the queue until the card has finished some descriptors. */
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
 * Without transmit interrupts, packets are freed when others are sent, or by
 * this timer.
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
		/* Freed long after it is sent: its socket must not wait. */
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

/* Frees sent packets, and announces waiting ones. */
void nve_tx_poll(struct nve *ne, int budget)
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
