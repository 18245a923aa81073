// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * netvale's ptnet device: netmap rings of the host, mapped through
 * ivshmem-doorbell, as a network interface and for netmap programs.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>

#include "nvptnet.h"

/* Time limit of the host for a command, in ms. */
#define NVPT_PATIENCE_MS 2000

void nvpt_ring_doorbell(struct nvpt *np, u32 vector)
{
	writel(np->host_peer << 16 | vector, np->regs + NVPT_REG_DOORBELL);
}

/* Sends a command to the host, and waits for its answer. */
int nvpt_command(struct nvpt *np, u32 command, u32 features, u32 extra_bufs)
{
	struct nvpt_header *h = np->header;
	/* A host that did not answer last time gets less time. */
	u32 patience = np->answers ? NVPT_PATIENCE_MS : 20;
	unsigned long limit = jiffies + msecs_to_jiffies(patience);
	u32 answered, result;

	mutex_lock(&np->command_lock);
	np->number++;
	WRITE_ONCE(h->wanted, cpu_to_le32(features));
	WRITE_ONCE(h->wanted_bufs, cpu_to_le32(extra_bufs));
	WRITE_ONCE(h->command, cpu_to_le32(command));
	/* The number is written last: it validates the other words. */
	virt_store_release(&h->number, cpu_to_le32(np->number));
	nvpt_ring_doorbell(np, np->vectors - 1);
	for (;;) {
		bool late = time_after(jiffies, limit);

		/* The result is read after its number. */
		answered = le32_to_cpu(virt_load_acquire(&h->answered));
		if (answered == np->number || late)
			break;
		usleep_range(50, 200);
	}
	np->answers = answered == np->number;
	result = le32_to_cpu(READ_ONCE(h->result));
	mutex_unlock(&np->command_lock);
	if (!np->answers)
		return -ETIMEDOUT;
	return result ? -(int)min_t(u32, result, MAX_ERRNO) : 0;
}

static irqreturn_t nvpt_ring_interrupt(int irq, void *data)
{
	struct nvpt_ring *ring = data;
	struct nvpt *np = ring->np;

	ring->stats.interrupts++;
	if (READ_ONCE(np->user) == NVPT_USER_NETMAP) {
		nvpt_cdev_interrupt(ring);
		return IRQ_HANDLED;
	}
	if (READ_ONCE(np->net_up)) {
		nvpt_disarm(ring);
		napi_schedule_irqoff(&ring->napi);
	}
	return IRQ_HANDLED;
}

static irqreturn_t nvpt_news_interrupt(int irq, void *data)
{
	struct nvpt *np = data;
	u32 status = le32_to_cpu(READ_ONCE(np->header->status));

	/* Answers to commands interrupt, too, but are polled for. */
	if (status & NVPT_S_NEEDS_RESET ||
	    !(status & NVPT_S_LINK_UP) == netif_carrier_ok(np->netdev))
		schedule_delayed_work(&np->news, 0);
	return IRQ_HANDLED;
}

/* ---- the host's header, each word read once ---- */

static int nvpt_refuse(struct nvpt *np, const char *what, u64 value)
{
	dev_err(&np->pdev->dev, "invalid %s in the header: %llu\n", what,
		value);
	return -EINVAL;
}

/* Whether @count objects of @size bytes at @at are after the header. */
static bool nvpt_inside(struct nvpt *np, u64 at, u64 count, u64 size)
{
	return at >= NVPT_HEADER_BYTES && at <= np->mem_len &&
	       count * size <= np->mem_len - at;
}

static int nvpt_read_sizes(struct nvpt *np)
{
	struct nvpt_header *h = np->header;

	np->num_tx = le32_to_cpu(READ_ONCE(h->tx_rings));
	np->num_rx = le32_to_cpu(READ_ONCE(h->rx_rings));
	np->vectors = le32_to_cpu(READ_ONCE(h->vectors));
	if (!np->num_tx || np->num_tx > NVPT_MAX_RINGS)
		return nvpt_refuse(np, "number of tx rings", np->num_tx);
	if (!np->num_rx || np->num_rx > NVPT_MAX_RINGS)
		return nvpt_refuse(np, "number of rx rings", np->num_rx);
	if (np->vectors != np->num_tx + np->num_rx + 1)
		return nvpt_refuse(np, "number of vectors", np->vectors);
	return 0;
}

static int nvpt_read_header(struct nvpt *np)
{
	struct nvpt_header *h = np->header;
	u32 rings = np->num_tx + np->num_rx;
	u32 slots;

	np->features = le32_to_cpu(READ_ONCE(h->features));
	np->tx_slots = le32_to_cpu(READ_ONCE(h->tx_slots));
	np->rx_slots = le32_to_cpu(READ_ONCE(h->rx_slots));
	np->buf_size = le32_to_cpu(READ_ONCE(h->buf_size));
	np->num_bufs = le32_to_cpu(READ_ONCE(h->num_bufs));
	np->mtu = le32_to_cpu(READ_ONCE(h->mtu));
	np->host_peer = le32_to_cpu(READ_ONCE(h->host_peer)) & 0xffff;
	np->csb_atok = le64_to_cpu(READ_ONCE(h->csb_atok));
	np->csb_ktoa = le64_to_cpu(READ_ONCE(h->csb_ktoa));
	np->ring_pool = le64_to_cpu(READ_ONCE(h->ring_pool));
	np->ring_size = le32_to_cpu(READ_ONCE(h->ring_size));
	np->buf_pool = le64_to_cpu(READ_ONCE(h->buf_pool));
	memcpy(np->mac, h->mac, ETH_ALEN);
	slots = max(np->tx_slots, np->rx_slots);
	if (min(np->tx_slots, np->rx_slots) < 4 || slots > NVPT_MAX_SLOTS)
		return nvpt_refuse(np, "number of slots", slots);
	if (np->buf_size < 64 || np->buf_size > 65536 || np->buf_size % 64)
		return nvpt_refuse(np, "buffer size", np->buf_size);
	if ((u64)np->ring_size < NVPT_RING_HEADER + (u64)slots * sizeof(struct nvpt_slot) ||
	    np->ring_size % 64)
		return nvpt_refuse(np, "ring size", np->ring_size);
	if (!nvpt_inside(np, np->csb_atok, rings, sizeof(struct nvpt_atok)) ||
	    np->csb_atok % 64)
		return nvpt_refuse(np, "status blocks", np->csb_atok);
	if (!nvpt_inside(np, np->csb_ktoa, rings, sizeof(struct nvpt_ktoa)) ||
	    np->csb_ktoa % 64)
		return nvpt_refuse(np, "status blocks", np->csb_ktoa);
	if (!nvpt_inside(np, np->ring_pool, rings, np->ring_size) ||
	    np->ring_pool % 64)
		return nvpt_refuse(np, "rings", np->ring_pool);
	if (!nvpt_inside(np, np->buf_pool, np->num_bufs, np->buf_size) ||
	    np->buf_pool % 64)
		return nvpt_refuse(np, "buffers", np->buf_pool);
	return 0;
}

/* Checks that the memory is netvale's, and of a supported version. */
static int nvpt_identify(struct pci_dev *pdev, const struct nvpt_header *h)
{
	u32 version = le32_to_cpu(READ_ONCE(h->version));

	if (READ_ONCE(h->magic[0]) != cpu_to_le32(NVPT_MAGIC_LO) ||
	    READ_ONCE(h->magic[1]) != cpu_to_le32(NVPT_MAGIC_HI)) {
		dev_info(&pdev->dev, "no ptnet header in the shared memory: not a ptnet device\n");
		return -ENODEV;
	}
	if (version != NVPT_VERSION) {
		dev_err(&pdev->dev, "ptnet version %u, expected %u\n",
			version, NVPT_VERSION);
		return -ENODEV;
	}
	return 0;
}

static int nvpt_init_ring(struct nvpt *np, u32 i)
{
	struct nvpt_ring *ring = nvpt_ring_at(np, i);
	bool tx = i < np->num_tx;

	ring->np = np;
	ring->vector = i;
	ring->index = tx ? i : i - np->num_tx;
	ring->num_slots = tx ? np->tx_slots : np->rx_slots;
	ring->atok = np->mem + np->csb_atok + i * sizeof(*ring->atok);
	ring->ktoa = np->mem + np->csb_ktoa + i * sizeof(*ring->ktoa);
	ring->slots = np->mem + np->ring_pool + (u64)i * np->ring_size +
		      NVPT_RING_HEADER;
	snprintf(ring->name, sizeof(ring->name), "%s-%s%u@%s", NVPT_NAME,
		 tx ? "tx" : "rx", ring->index, pci_name(np->pdev));
	u64_stats_init(&ring->stats.sync);
	init_waitqueue_head(&ring->wait);
	hrtimer_setup(&ring->timer, nvpt_rx_timer, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL);
	if (!tx)
		return 0;
	ring->bytes = kcalloc(ring->num_slots, sizeof(*ring->bytes), GFP_KERNEL);
	return ring->bytes ? 0 : -ENOMEM;
}

/* ---- probe and removal ---- */

static void nvpt_release(struct kref *ref)
{
	struct nvpt *np = container_of(ref, struct nvpt, ref);
	u32 i;

	for (i = 0; i < np->num_tx; i++)
		kfree(np->tx[i].bytes);
	kfree(np->tx);
	kfree(np->rx);
	pci_dev_put(np->pdev);
	kfree(np);
}

void nvpt_put(struct nvpt *np)
{
	kref_put(&np->ref, nvpt_release);
}

static int nvpt_request_irqs(struct nvpt *np)
{
	struct pci_dev *pdev = np->pdev;
	u32 i, n = np->vectors - 1;
	int err = pci_alloc_irq_vectors(pdev, np->vectors, np->vectors,
					PCI_IRQ_MSIX);

	if (err < 0) {
		dev_err(&pdev->dev, "%d interrupt vectors, expected %u: start QEMU with ivshmem-doorbell,vectors=%u\n",
			pci_msix_vec_count(pdev), np->vectors, np->vectors);
		return err;
	}
	for (i = 0; i < n; i++) {
		struct nvpt_ring *ring = nvpt_ring_at(np, i);

		err = request_irq(pci_irq_vector(pdev, i), nvpt_ring_interrupt,
				  0, ring->name, ring);
		if (err)
			goto undo;
	}
	err = request_irq(pci_irq_vector(pdev, n), nvpt_news_interrupt, 0,
			  pci_name(pdev), np);
	if (!err)
		return 0;
undo:
	while (i--)
		free_irq(pci_irq_vector(pdev, i), nvpt_ring_at(np, i));
	pci_free_irq_vectors(pdev);
	return err;
}

static void nvpt_free_irqs(struct nvpt *np)
{
	u32 i, n = np->vectors - 1;

	free_irq(pci_irq_vector(np->pdev, n), np);
	for (i = 0; i < n; i++)
		free_irq(pci_irq_vector(np->pdev, i), nvpt_ring_at(np, i));
	pci_free_irq_vectors(np->pdev);
}

/* Creates a device on mapped memory, without interrupts and interfaces. */
static struct nvpt *nvpt_create(struct pci_dev *pdev, void *mem,
				void __iomem *regs)
{
	struct nvpt probe = { .pdev = pdev, .header = mem };
	struct nvpt *np;
	u32 i;
	int err = nvpt_identify(pdev, mem) ?: nvpt_read_sizes(&probe);

	if (err)
		return ERR_PTR(err);
	np = nvpt_net_alloc(pdev, probe.num_tx, probe.num_rx);
	if (!np)
		return ERR_PTR(-ENOMEM);
	pci_dev_get(pdev);
	np->num_tx = probe.num_tx;
	np->num_rx = probe.num_rx;
	np->vectors = probe.vectors;
	np->mem = mem;
	np->header = mem;
	np->regs = regs;
	np->mem_start = pci_resource_start(pdev, NVPT_BAR_MEMORY);
	np->mem_len = pci_resource_len(pdev, NVPT_BAR_MEMORY);
	np->answers = true;
	np->number = le32_to_cpu(READ_ONCE(np->header->number));
	mutex_init(&np->command_lock);
	init_rwsem(&np->gone_lock);
	INIT_DELAYED_WORK(&np->news, nvpt_news);
	err = nvpt_read_header(np);
	for (i = 0; !err && i < np->num_tx + np->num_rx; i++)
		err = nvpt_init_ring(np, i);
	if (err) {
		free_netdev(np->netdev);
		nvpt_put(np);
		return ERR_PTR(err);
	}
	return np;
}

static int nvpt_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	void __iomem *regs;
	struct nvpt *np;
	void *mem;
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
	if (pci_resource_len(pdev, NVPT_BAR_MEMORY) < 2 * NVPT_HEADER_BYTES)
		return -ENODEV;
	err = pcim_iomap_regions(pdev, BIT(NVPT_BAR_REGS), NVPT_NAME);
	if (err)
		return err;
	regs = pcim_iomap_table(pdev)[NVPT_BAR_REGS];
	mem = devm_memremap(&pdev->dev, pci_resource_start(pdev, NVPT_BAR_MEMORY),
			    pci_resource_len(pdev, NVPT_BAR_MEMORY), MEMREMAP_WB);
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	np = nvpt_create(pdev, mem, regs);
	if (IS_ERR(np))
		return PTR_ERR(np);
	pci_set_master(pdev);
	pci_set_drvdata(pdev, np);
	err = nvpt_request_irqs(np);
	if (err)
		goto free;
	err = nvpt_net_register(np);
	if (err)
		goto irqs;
	err = nvpt_cdev_register(np);
	if (err)
		goto unregister;
	netdev_info(np->netdev, "ptnet, %u tx and %u rx rings, /dev/%s\n",
		    np->num_tx, np->num_rx, np->misc_name);
	return 0;
unregister:
	unregister_netdev(np->netdev);
irqs:
	nvpt_free_irqs(np);
free:
	cancel_delayed_work_sync(&np->news);
	free_netdev(np->netdev);
	nvpt_put(np);
	return err;
}

static void nvpt_remove(struct pci_dev *pdev)
{
	struct nvpt *np = pci_get_drvdata(pdev);

	nvpt_cdev_unregister(np);
	unregister_netdev(np->netdev);
	nvpt_command(np, NVPT_CMD_STOP, 0, 0);
	nvpt_free_irqs(np);
	/* Only now can it no longer be scheduled. */
	cancel_delayed_work_sync(&np->news);
	free_netdev(np->netdev);
	np->netdev = NULL;
	nvpt_put(np);
}

/* Releases the memory before a shutdown or the start of another kernel. */
static void nvpt_shutdown(struct pci_dev *pdev)
{
	struct nvpt *np = pci_get_drvdata(pdev);

	rtnl_lock();
	netif_device_detach(np->netdev);
	nvpt_net_down(np);
	rtnl_unlock();
}

static int __maybe_unused nvpt_suspend(struct device *dev)
{
	struct nvpt *np = dev_get_drvdata(dev);

	rtnl_lock();
	netif_device_detach(np->netdev);
	nvpt_net_down(np);
	rtnl_unlock();
	return 0;
}

static int __maybe_unused nvpt_resume(struct device *dev)
{
	struct nvpt *np = dev_get_drvdata(dev);

	rtnl_lock();
	netif_device_attach(np->netdev);
	if (netif_running(np->netdev) && np->user == NVPT_USER_NET &&
	    nvpt_net_up(np))
		schedule_delayed_work(&np->news, HZ);
	rtnl_unlock();
	return 0;
}

static SIMPLE_DEV_PM_OPS(nvpt_pm, nvpt_suspend, nvpt_resume);

static const struct pci_device_id nvpt_ids[] = {
	{ PCI_DEVICE(NVPT_PCI_VENDOR, NVPT_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, nvpt_ids);

static struct pci_driver nvpt_driver = {
	.name = NVPT_NAME,
	.id_table = nvpt_ids,
	.probe = nvpt_probe,
	.remove = nvpt_remove,
	.shutdown = nvpt_shutdown,
	.driver.pm = &nvpt_pm,
};
module_pci_driver(nvpt_driver);

MODULE_DESCRIPTION("netvale ptnet network device");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("0.1.0");
