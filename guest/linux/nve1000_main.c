// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * nve1000: a driver for netvale's e1000, an Intel 82540EM, with Send Combining
 * and with the status block that the card advertises. It also drives any other
 * 82540EM, without a status block.
 */
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>

#include "nve1000.h"
#include "nve1000_net.h"

static bool sc;
module_param(sc, bool, 0444);
MODULE_PARM_DESC(sc, "Send Combining: packets wait until the card has sent earlier ones");

static bool csb = true;
module_param(csb, bool, 0444);
MODULE_PARM_DESC(csb, "use the status block, if the card has one");

static unsigned int slots = 256;
module_param(slots, uint, 0444);
MODULE_PARM_DESC(slots, "descriptors of each ring: a power of two from 128 to 4096");

/* With a status block: interrupt causes other than the rings. */
static u32 nve_csb_causes(struct nve *ne)
{
	WRITE_ONCE(ne->csb->rx_guest.need_kick, 0);
	if (!READ_ONCE(ne->csb->causes))
		return 0;
	return nve_read(ne, NVE_ICR);
}

static irqreturn_t nve_interrupt(int irq, void *data)
{
	struct nve *ne = data;
	u32 causes;

	if (ne->csb) {
		/* Other devices may share the interrupt pin. */
		if (!ne->msi && !READ_ONCE(ne->csb->causes))
			return IRQ_NONE;
		causes = nve_csb_causes(ne);
	} else {
		causes = nve_read(ne, NVE_ICR);
		if (!causes)
			return IRQ_NONE;
		nve_write(ne, NVE_IMC, NVE_INT_ALL);
	}
	ne->interrupts++;
	if (causes & NVE_INT_LSC)
		schedule_work(&ne->link);
	napi_schedule(&ne->napi);
	return IRQ_HANDLED;
}

static void nve_link(struct work_struct *work)
{
	struct nve *ne = container_of(work, struct nve, link);

	if (nve_read(ne, NVE_STATUS) & NVE_STATUS_LU)
		netif_carrier_on(ne->netdev);
	else
		netif_carrier_off(ne->netdev);
}

static int nve_reset(struct nve *ne)
{
	unsigned long limit = jiffies + HZ;

	nve_write(ne, NVE_IMC, ~0);
	nve_write(ne, NVE_CTRL, NVE_CTRL_RST);
	while (nve_read(ne, NVE_CTRL) & NVE_CTRL_RST) {
		if (time_after(jiffies, limit))
			return -EIO;
		msleep(1);
	}
	nve_write(ne, NVE_IMC, ~0);
	nve_read(ne, NVE_ICR);
	return 0;
}

static void nve_start_rings(struct nve *ne)
{
	u32 bytes = ne->slots * sizeof(struct nve_desc);

	nve_write(ne, NVE_TDBAL, lower_32_bits(ne->tx.dma));
	nve_write(ne, NVE_TDBAH, upper_32_bits(ne->tx.dma));
	nve_write(ne, NVE_TDLEN, bytes);
	nve_write(ne, NVE_RDBAL, lower_32_bits(ne->rx.dma));
	nve_write(ne, NVE_RDBAH, upper_32_bits(ne->rx.dma));
	nve_write(ne, NVE_RDLEN, bytes);
}

static void nve_start_csb(struct nve *ne)
{
	if (!ne->csb)
		return;
	memset(ne->csb, 0, sizeof(*ne->csb));
	ne->csb->rx_guest.need_kick = cpu_to_le32(1);
	nve_write(ne, NVE_CSBAH, upper_32_bits(ne->csb_dma));
	nve_write(ne, NVE_CSBAL, lower_32_bits(ne->csb_dma));
}

/* Resets and starts the card. Under rtnl. */
int nve_up(struct nve *ne)
{
	int err = nve_reset(ne);

	if (err)
		return err;
	nve_write(ne, NVE_CTRL, NVE_CTRL_SLU | NVE_CTRL_ASDE);
	nve_set_address(ne);
	nve_rings_reset(ne);
	nve_start_rings(ne);
	nve_start_csb(ne);
	nve_write(ne, NVE_ITR, ne->itr);
	nve_set_filter(ne->netdev);
	nve_write(ne, NVE_TIPG, NVE_TIPG_GAPS);
	nve_write(ne, NVE_TCTL, NVE_TCTL_START);
	napi_enable(&ne->napi);
	nve_refill(ne, true);
	netif_start_queue(ne->netdev);
	nve_write(ne, NVE_IMS, NVE_INT_ALL);
	nve_link(&ne->link);
	return 0;
}

/* Stops the card, which then accesses no memory. Under rtnl. */
void nve_down(struct nve *ne)
{
	netif_carrier_off(ne->netdev);
	netif_tx_disable(ne->netdev);
	timer_delete_sync(&ne->tidy);
	napi_disable(&ne->napi);
	timer_delete_sync(&ne->tidy);
	nve_write(ne, NVE_RCTL, 0);
	nve_write(ne, NVE_TCTL, 0);
	nve_reset(ne);
	synchronize_irq(pci_irq_vector(ne->pdev, 0));
	cancel_work_sync(&ne->link);
	nve_tx_drop_all(ne);
}

static int nve_init_irq(struct nve *ne)
{
	unsigned int kinds = PCI_IRQ_MSI | PCI_IRQ_LEGACY;
	int err = pci_alloc_irq_vectors(ne->pdev, 1, 1, kinds);

	if (err < 0)
		return err;
	ne->msi = ne->pdev->msi_enabled;
	return request_irq(pci_irq_vector(ne->pdev, 0), nve_interrupt,
			   ne->msi ? 0 : IRQF_SHARED, NVE_NAME, ne);
}

static void nve_init_csb(struct nve *ne)
{
	struct pci_dev *pdev = ne->pdev;

	if (!csb)
		return;
	if (pdev->subsystem_device != NVE_SUBSYSTEM_CSB) {
		pci_info(pdev, "no status block: not netvale's card\n");
		return;
	}
	/* A page, as the block must be aligned to 64 bytes. */
	ne->csb = dma_alloc_coherent(&pdev->dev, PAGE_SIZE, &ne->csb_dma,
				     GFP_KERNEL);
}

static int nve_init_card(struct nve *ne)
{
	u8 addr[ETH_ALEN];
	u32 low, high;
	int err = nve_reset(ne);

	if (err)
		return err;
	/* The reset loads the address from the EEPROM. */
	low = nve_read(ne, NVE_RAL);
	high = nve_read(ne, NVE_RAH);
	addr[0] = low;
	addr[1] = low >> 8;
	addr[2] = low >> 16;
	addr[3] = low >> 24;
	addr[4] = high;
	addr[5] = high >> 8;
	if (!is_valid_ether_addr(addr))
		return -EIO;
	eth_hw_addr_set(ne->netdev, addr);
	nve_init_csb(ne);
	return 0;
}

static int nve_init_pci(struct pci_dev *pdev)
{
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	pci_set_master(pdev);
	return pcim_iomap_regions(pdev, BIT(0), NVE_NAME);
}

static int nve_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *netdev;
	struct nve *ne;
	int err = nve_init_pci(pdev);

	if (err)
		return err;
	if (slots < 128 || slots > 4096 || !is_power_of_2(slots))
		return -EINVAL;
	netdev = alloc_etherdev(sizeof(*ne));
	if (!netdev)
		return -ENOMEM;
	SET_NETDEV_DEV(netdev, &pdev->dev);
	ne = netdev_priv(netdev);
	ne->pdev = pdev;
	ne->netdev = netdev;
	ne->regs = pcim_iomap_table(pdev)[0];
	ne->slots = slots;
	ne->combine = sc ? slots / 2 : 0;
	INIT_WORK(&ne->link, nve_link);
	timer_setup(&ne->tidy, nve_tidy, 0);
	nve_net_init(ne);
	pci_set_drvdata(pdev, ne);
	err = nve_init_card(ne);
	if (!err)
		err = nve_rings_alloc(ne);
	if (err)
		goto free;
	err = nve_init_irq(ne);
	if (err)
		goto rings;
	netif_carrier_off(netdev);
	err = register_netdev(netdev);
	if (err)
		goto irq;
	netdev_info(netdev, "%pM, %u descriptors, %s, %s\n", netdev->dev_addr,
		    slots, ne->msi ? "MSI" : "INTx",
		    ne->csb ? "status block" :
		    ne->combine ? "Send Combining" : "registers");
	return 0;

irq:
	free_irq(pci_irq_vector(pdev, 0), ne);
rings:
	pci_free_irq_vectors(pdev);
	nve_rings_free(ne);
free:
	if (ne->csb)
		dma_free_coherent(&pdev->dev, PAGE_SIZE, ne->csb, ne->csb_dma);
	free_netdev(netdev);
	return err;
}

static void nve_remove(struct pci_dev *pdev)
{
	struct nve *ne = pci_get_drvdata(pdev);

	unregister_netdev(ne->netdev);
	cancel_work_sync(&ne->again);
	free_irq(pci_irq_vector(pdev, 0), ne);
	pci_free_irq_vectors(pdev);
	nve_rings_free(ne);
	if (ne->csb)
		dma_free_coherent(&pdev->dev, PAGE_SIZE, ne->csb, ne->csb_dma);
	free_netdev(ne->netdev);
}

static int __maybe_unused nve_suspend(struct device *dev)
{
	struct nve *ne = dev_get_drvdata(dev);

	rtnl_lock();
	netif_device_detach(ne->netdev);
	if (netif_running(ne->netdev))
		nve_down(ne);
	rtnl_unlock();
	return 0;
}

static int __maybe_unused nve_resume(struct device *dev)
{
	struct nve *ne = dev_get_drvdata(dev);
	int err = 0;

	rtnl_lock();
	if (netif_running(ne->netdev))
		err = nve_up(ne);
	if (!err)
		netif_device_attach(ne->netdev);
	rtnl_unlock();
	return err;
}

static SIMPLE_DEV_PM_OPS(nve_pm_ops, nve_suspend, nve_resume);

static const struct pci_device_id nve_ids[] = {
	{ PCI_DEVICE(NVE_PCI_VENDOR, NVE_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, nve_ids);

static struct pci_driver nve_driver = {
	.name = NVE_NAME,
	.id_table = nve_ids,
	.probe = nve_probe,
	.remove = nve_remove,
	.driver.pm = &nve_pm_ops,
};
module_pci_driver(nve_driver);

MODULE_DESCRIPTION("netvale e1000 with Send Combining and status block");
MODULE_LICENSE("Dual BSD/GPL");
