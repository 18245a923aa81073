// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The packet path: moves frames between socket buffers and ring slots. */
#include <linux/skbuff.h>
#include <linux/virtio_net.h>

#include "nvptnet.h"

/* Bytes of a longer frame that go into the linear part of its skb. */
#define NVPT_COPYBREAK 256

static u32 nvpt_next(const struct nvpt_ring *ring, u32 i)
{
	return i + 1 == ring->num_slots ? 0 : i + 1;
}

/* Returns the number of slots that belong to the driver. */
static u32 nvpt_room(const struct nvpt_ring *ring)
{
	u32 room = ring->tail - ring->head;

	return (s32)room < 0 ? room + ring->num_slots : room;
}

/* Marks a ring with an invalid index: it is unused until a reset. */
static void nvpt_break(struct nvpt_ring *ring, u32 value)
{
	struct nvpt *np = ring->np;

	if (ring->broken)
		return;
	ring->broken = true;
	ring->fault = value;
	ring->stats.errors++;
	schedule_delayed_work(&np->news, 0);
}

/* Takes over the indices that the host published, if valid. */
static void nvpt_refresh(struct nvpt_ring *ring)
{
	u32 tail;

	/* Slots and buffers are read after the tail that passes them. */
	tail = le32_to_cpu(virt_load_acquire(&ring->ktoa->hwtail));
	if (unlikely(tail >= ring->num_slots))
		nvpt_break(ring, tail);
	else
		ring->tail = tail;
}

/* Publishes head; rings the doorbell if the host sleeps. */
static void nvpt_publish(struct nvpt_ring *ring)
{
	__le32 head = cpu_to_le32(ring->head);

	WRITE_ONCE(ring->atok->cur, head);
	/* Slots and buffers are written before the head that passes them. */
	virt_store_release(&ring->atok->head, head);
	/* The host arms, then reads head; we do the reverse. */
	virt_mb();
	if (READ_ONCE(ring->ktoa->need_kick)) {
		ring->stats.kicks++;
		nvpt_ring_doorbell(ring->np, ring->vector);
	}
}

static u8 *nvpt_buf(const struct nvpt *np, u32 idx)
{
	if (unlikely(idx < NVPT_RESERVED_BUFS || idx >= np->num_bufs))
		return NULL;
	return np->mem + np->buf_pool + (u64)idx * np->buf_size;
}

/* Returns the maximum length of a frame in a ring, header included. */
u32 nvpt_max_frame(struct nvpt *np)
{
	u32 slots = min3(np->tx_slots, np->rx_slots, (u32)(2 * NVPT_MAX_FRAGS));

	return max(slots / 2, 1u) * np->buf_size;
}

/* ---- sending ---- */

static u32 nvpt_slots_for(const struct nvpt *np, u32 len)
{
	return DIV_ROUND_UP(len + np->hdr_len, np->buf_size);
}

/* Returns the slots of the longest frame: with fewer, the queue stops. */
static u32 nvpt_tx_reserve(struct nvpt *np)
{
	u32 len = max(np->netdev->gso_max_size, np->netdev->mtu + ETH_HLEN + 8);

	return min(nvpt_slots_for(np, len), np->tx_slots - 1);
}

/* Completes frames that the host has taken. Under the queue's lock. */
static void nvpt_tx_reap(struct nvpt_ring *ring, struct netdev_queue *queue)
{
	u32 hwcur = le32_to_cpu(READ_ONCE(ring->ktoa->hwcur));
	u32 packets = 0, bytes = 0;

	nvpt_refresh(ring);
	if (unlikely(hwcur >= ring->num_slots)) {
		nvpt_break(ring, hwcur);
		return;
	}
	/* Never beyond the published slots, whatever the host wrote. */
	while (ring->done != hwcur && ring->done != ring->head) {
		if (ring->bytes[ring->done]) {
			packets++;
			bytes += ring->bytes[ring->done];
		}
		ring->done = nvpt_next(ring, ring->done);
	}
	if (packets)
		netdev_tx_completed_queue(queue, packets, bytes);
}

/* Stops the queue until the host has made room, unless it just did. */
static void nvpt_tx_stop(struct nvpt_ring *ring, struct netdev_queue *queue)
{
	netif_tx_stop_queue(queue);
	ring->stats.stops++;
	nvpt_arm(ring);
	nvpt_tx_reap(ring, queue);
	if (nvpt_room(ring) >= nvpt_tx_reserve(ring->np)) {
		nvpt_disarm(ring);
		netif_tx_start_queue(queue);
	}
}

/* Writes a frame into available slots. */
static int nvpt_tx_fill(struct nvpt_ring *ring, struct sk_buff *skb, u32 slots)
{
	struct nvpt *np = ring->np;
	struct virtio_net_hdr_mrg_rxbuf hdr = {};
	u32 i = ring->head, at = 0, last = i, n;

	if (np->hdr_len &&
	    virtio_net_hdr_from_skb(skb, &hdr.hdr, true, false, 0))
		return -EINVAL;
	for (n = 0; n < slots; n++) {
		struct nvpt_slot *slot = &ring->slots[i];
		u8 *buf = nvpt_buf(np, le32_to_cpu(READ_ONCE(slot->buf_idx)));
		u32 hdr_len = n ? 0 : np->hdr_len;
		u32 len = min(skb->len - at, np->buf_size - hdr_len);

		if (unlikely(!buf))
			return -EIO;
		memcpy(buf, &hdr, hdr_len);
		skb_copy_bits(skb, at, buf + hdr_len, len);
		WRITE_ONCE(slot->len, cpu_to_le16(len + hdr_len));
		WRITE_ONCE(slot->flags,
			   cpu_to_le16(n + 1 < slots ? NVPT_SLOT_MOREFRAG : 0));
		ring->bytes[i] = 0;
		at += len;
		last = i;
		i = nvpt_next(ring, i);
	}
	ring->bytes[last] = skb->len;
	ring->head = i;
	return 0;
}

netdev_tx_t nvpt_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct nvpt *np = *(struct nvpt **)netdev_priv(netdev);
	u16 q = skb_get_queue_mapping(skb);
	struct nvpt_ring *ring = &np->tx[q];
	struct netdev_queue *queue = netdev_get_tx_queue(netdev, q);
	u32 slots = nvpt_slots_for(np, skb->len);
	bool more = netdev_xmit_more();
	u32 len = skb->len;

	nvpt_tx_reap(ring, queue);
	if (unlikely(ring->broken || slots >= ring->num_slots))
		goto drop;
	if (unlikely(nvpt_room(ring) < slots)) {
		nvpt_tx_stop(ring, queue);
		if (nvpt_room(ring) < slots) {
			nvpt_publish(ring);
			return NETDEV_TX_BUSY;
		}
	}
	skb_tx_timestamp(skb);
	if (unlikely(nvpt_tx_fill(ring, skb, slots)))
		goto drop;
	u64_stats_update_begin(&ring->stats.sync);
	ring->stats.packets++;
	ring->stats.bytes += len;
	u64_stats_update_end(&ring->stats.sync);
	dev_consume_skb_any(skb);
	netdev_tx_sent_queue(queue, len);
	if (nvpt_room(ring) < nvpt_tx_reserve(np))
		nvpt_tx_stop(ring, queue);
	if (!more || netif_xmit_stopped(queue)) {
		nvpt_publish(ring);
		/* BQL stopped the queue: request an interrupt on completion. */
		if (netif_xmit_stopped(queue)) {
			nvpt_arm(ring);
			nvpt_tx_reap(ring, queue);
		}
	}
	return NETDEV_TX_OK;
drop:
	ring->stats.dropped++;
	dev_kfree_skb_any(skb);
	/* Earlier frames may have waited for this one. */
	if (!more && !ring->broken)
		nvpt_publish(ring);
	return NETDEV_TX_OK;
}

int nvpt_tx_poll(struct napi_struct *napi, int budget)
{
	struct nvpt_ring *ring = container_of(napi, struct nvpt_ring, napi);
	struct nvpt *np = ring->np;
	struct netdev_queue *queue = netdev_get_tx_queue(np->netdev, ring->index);
	bool waits;

	__netif_tx_lock(queue, smp_processor_id());
	nvpt_tx_reap(ring, queue);
	if (netif_tx_queue_stopped(queue) &&
	    nvpt_room(ring) >= nvpt_tx_reserve(np))
		netif_tx_wake_queue(queue);
	waits = netif_xmit_stopped(queue) && !ring->broken;
	__netif_tx_unlock(queue);
	if (napi_complete_done(napi, 0) && waits) {
		u32 before = READ_ONCE(ring->done);

		nvpt_arm(ring);
		if (le32_to_cpu(READ_ONCE(ring->ktoa->hwcur)) != before) {
			nvpt_disarm(ring);
			napi_schedule(napi);
		}
	}
	return 0;
}

/* ---- receiving ---- */

/* A frame in the slots of a ring. */
struct nvpt_frame {
	u8 *piece[NVPT_MAX_FRAGS];
	u32 len[NVPT_MAX_FRAGS];
	u32 pieces;
	u32 total;
	struct virtio_net_hdr_mrg_rxbuf hdr;
};

/*
 * Gathers the frame at the ring's head and advances past it. Returns false if
 * the frame is invalid.
 */
static bool nvpt_gather(struct nvpt_ring *ring, struct nvpt_frame *frame)
{
	struct nvpt *np = ring->np;
	bool good = true, more = true;

	frame->pieces = 0;
	frame->total = 0;
	while (more && ring->head != ring->tail) {
		struct nvpt_slot *slot = &ring->slots[ring->head];
		u8 *buf = nvpt_buf(np, le32_to_cpu(READ_ONCE(slot->buf_idx)));
		u32 len = le16_to_cpu(READ_ONCE(slot->len));
		u32 skip = 0;

		more = READ_ONCE(slot->flags) & cpu_to_le16(NVPT_SLOT_MOREFRAG);
		ring->head = nvpt_next(ring, ring->head);
		if (!buf || len > np->buf_size ||
		    frame->pieces == NVPT_MAX_FRAGS) {
			good = false;
			continue;
		}
		if (!frame->pieces && np->hdr_len) {
			skip = np->hdr_len;
			if (len < skip) {
				good = false;
				continue;
			}
			memcpy(&frame->hdr, buf, skip);
		}
		frame->piece[frame->pieces] = buf + skip;
		frame->len[frame->pieces++] = len - skip;
		frame->total += len - skip;
	}
	return good && !more && frame->total >= ETH_HLEN;
}

/* Copies the rest of a frame, after the linear part, into pages. */
static bool nvpt_add_pages(struct sk_buff *skb, const struct nvpt_frame *frame,
			   u32 skip)
{
	struct page *page = NULL;
	u32 filled = 0, p;

	for (p = 0; p < frame->pieces; p++) {
		const u8 *from = frame->piece[p];
		u32 left = frame->len[p];

		if (skip) {
			u32 n = min(skip, left);

			from += n;
			left -= n;
			skip -= n;
		}
		while (left) {
			u32 n;

			if (!page) {
				if (skb_shinfo(skb)->nr_frags == MAX_SKB_FRAGS)
					return false;
				page = dev_alloc_page();
				if (!page)
					return false;
				filled = 0;
			}
			n = min_t(u32, left, PAGE_SIZE - filled);
			memcpy(page_address(page) + filled, from, n);
			from += n;
			left -= n;
			filled += n;
			if (filled == PAGE_SIZE) {
				skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags,
						page, 0, filled, PAGE_SIZE);
				page = NULL;
			}
		}
	}
	if (page)
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, 0,
				filled, PAGE_SIZE);
	return true;
}

static struct sk_buff *nvpt_build(struct nvpt_ring *ring,
				  const struct nvpt_frame *frame)
{
	struct nvpt *np = ring->np;
	bool one = frame->pieces == 1;
	u32 linear = one ? frame->total : min_t(u32, frame->total, NVPT_COPYBREAK);
	u32 at = 0, p;
	struct sk_buff *skb = napi_alloc_skb(&ring->napi, linear);

	if (unlikely(!skb))
		return NULL;
	for (p = 0; p < frame->pieces && at < linear; p++) {
		u32 n = min(frame->len[p], linear - at);

		skb_put_data(skb, frame->piece[p], n);
		at += n;
	}
	if (!one && !nvpt_add_pages(skb, frame, linear))
		goto bad;
	if (np->hdr_len) {
		if (frame->hdr.hdr.flags & VIRTIO_NET_HDR_F_DATA_VALID)
			skb->ip_summed = CHECKSUM_UNNECESSARY;
		if (virtio_net_hdr_to_skb(skb, &frame->hdr.hdr, true))
			goto bad;
	}
	skb_record_rx_queue(skb, ring->index);
	skb->protocol = eth_type_trans(skb, np->netdev);
	return skb;
bad:
	dev_kfree_skb_any(skb);
	return NULL;
}

/* Receives one frame. Returns false if there is none. */
static bool nvpt_rx_one(struct nvpt_ring *ring)
{
	struct nvpt_frame frame;
	struct sk_buff *skb;

	if (ring->head == ring->tail)
		nvpt_refresh(ring);
	if (ring->broken || ring->head == ring->tail)
		return false;
	if (unlikely(!nvpt_gather(ring, &frame))) {
		ring->stats.errors++;
		return true;
	}
	skb = nvpt_build(ring, &frame);
	if (unlikely(!skb)) {
		ring->stats.dropped++;
		return true;
	}
	u64_stats_update_begin(&ring->stats.sync);
	ring->stats.packets++;
	ring->stats.bytes += frame.total;
	u64_stats_update_end(&ring->stats.sync);
	napi_gro_receive(&ring->napi, skb);
	return true;
}

/* Requests an interrupt; polls again if frames arrived meanwhile. */
static void nvpt_rx_arm(struct nvpt_ring *ring)
{
	nvpt_arm(ring);
	nvpt_refresh(ring);
	if (ring->head != ring->tail && !ring->broken) {
		nvpt_disarm(ring);
		napi_schedule(&ring->napi);
	}
}

int nvpt_rx_poll(struct napi_struct *napi, int budget)
{
	struct nvpt_ring *ring = container_of(napi, struct nvpt_ring, napi);
	u32 usecs = READ_ONCE(ring->np->rx_usecs);
	u32 before = ring->head;
	int work = 0;

	while (work < budget && nvpt_rx_one(ring))
		work++;
	if (ring->head != before)
		nvpt_publish(ring);
	if (work >= budget)
		return work;
	if (napi_complete_done(napi, work)) {
		if (usecs && work)
			hrtimer_start(&ring->timer, ns_to_ktime((u64)usecs * NSEC_PER_USEC),
				      HRTIMER_MODE_REL);
		else
			nvpt_rx_arm(ring);
	}
	return work;
}

enum hrtimer_restart nvpt_rx_timer(struct hrtimer *timer)
{
	struct nvpt_ring *ring = container_of(timer, struct nvpt_ring, timer);

	napi_schedule(&ring->napi);
	return HRTIMER_NORESTART;
}

/* ---- both directions ---- */

static void nvpt_ring_restart(struct nvpt_ring *ring, bool tx)
{
	ring->head = le32_to_cpu(READ_ONCE(ring->atok->head));
	if (ring->head >= ring->num_slots)
		ring->head = 0;
	ring->tail = ring->head;
	ring->done = ring->head;
	ring->broken = false;
	nvpt_refresh(ring);
	if (tx)
		memset(ring->bytes, 0, ring->num_slots * sizeof(*ring->bytes));
}

/* Restarts all rings at the indices that the host has set for them. */
void nvpt_rings_restart(struct nvpt *np)
{
	u32 i;

	for (i = 0; i < np->num_tx; i++)
		nvpt_ring_restart(&np->tx[i], true);
	for (i = 0; i < np->num_rx; i++)
		nvpt_ring_restart(&np->rx[i], false);
}
