/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <strait/dma.h>

#include "api/api.h"
#include "api/dma.h"
#include "base/util.h"
#include "endpoint/dma/dma.h"

static struct strait_context *owner(const struct strait_dma *dma)
{
	return dma->owner;
}

/* Takes ownership of @pci, also on failure. */
static int adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_dma_opts *o,
		 struct strait_dma **ret)
{
	struct strait_dma *dma;
	int rc = dma_open(&ctx->set, pci, o, &dma);

	if (rc)
		return rc;
	engine_ref(ctx);
	dma->owner = ctx;
	*ret = dma;
	return 0;
}

static int read_opts(const struct strait_dma_opts *user, struct strait_dma_opts *o)
{
	*o = (struct strait_dma_opts){ .size = sizeof(*o) };
	return user ? struct_in(o, sizeof(*o), user, STRAIT_DMA_OPTS_SIZE_V1) : 0;
}

int dma_adopt(struct strait_context *ctx, struct pci_device *pci, const struct strait_dma_opts *user,
	      struct strait_dma **ret)
{
	struct strait_dma_opts o;
	int rc = read_opts(user, &o);

	if (rc) {
		pci_close(pci);
		return rc;
	}
	return adopt(ctx, pci, &o, ret);
}

STRAIT_API int strait_dma_open(struct strait_context *ctx, const char *name, const struct strait_dma_opts *user,
			       struct strait_dma **ret)
{
	struct strait_dma_opts o;
	struct pci_device *pci;
	int rc;

	API_CHECK(ctx && name && ret);
	API_ALIVE(ctx);
	rc = read_opts(user, &o);
	if (!rc)
		rc = pci_open_or_say(&ctx->log, name, o.backend,
				     o.flags & STRAIT_DMA_UNREVOCABLE ? PCI_MAP_UNREVOCABLE : 0, &pci);
	return rc ? rc : adopt(ctx, pci, &o, ret);
}

STRAIT_API void strait_dma_close(struct strait_dma *dma)
{
	struct strait_context *ctx;

	if (!dma || engine_alive(owner(dma)))
		return;
	ctx = owner(dma);
	dma_unref(dma);
	engine_unref(ctx);
}

STRAIT_API int strait_dma_info(struct strait_dma *dma, struct strait_dma_info *info)
{
	struct strait_dma_info i;

	API_CHECK(dma && info);
	API_ALIVE(owner(dma));
	dma_info(dma, &i);
	return struct_out(info, &i, sizeof(i), STRAIT_DMA_INFO_SIZE_V1);
}

STRAIT_API int strait_dma_endpoint(struct strait_dma *dma, struct strait_endpoint **ret)
{
	struct strait_endpoint *ep;
	int rc;

	API_CHECK(dma && ret);
	API_ALIVE(owner(dma));
	rc = dma_endpoint_open(dma, &ep);
	if (!rc)
		rc = endpoint_adopt(owner(dma), ep);
	if (!rc)
		*ret = ep;
	return rc;
}

STRAIT_API int strait_dma_mmio_map(struct strait_dma *dma, struct strait_device *dev, unsigned int bar, uint64_t offset,
				   uint64_t len, struct strait_dma_mmio *mmio)
{
	struct strait_dma_mmio m = { .size = sizeof(m) };
	struct host_reg *reg;
	int rc;

	API_CHECK(dma && dev && mmio && struct_room(mmio, STRAIT_DMA_MMIO_SIZE_V1));
	API_CHECK(bar < PCI_BARS && len && !(offset % 4096) && !(len % 4096));
	API_ALIVE(owner(dma));
	API_CHECK(device_context(dev) == owner(dma) && range_inside(offset, len, dma->pci->bar[bar].length));
	if (!(dev->caps & STRAIT_DEVICE_MMIO) || !dma->pci->bar[bar].at)
		return -EOPNOTSUPP;
	reg = calloc(1, sizeof(*reg));
	if (!reg)
		return -ENOMEM;
	rc = dev->ops->mmio_map(dev, (void *)(dma->pci->bar[bar].at + offset), len, reg);
	if (rc) {
		free(reg);
		return rc;
	}
	m.address = reg->dev_addr;
	m.length = len;
	m.priv = reg;
	return struct_out(mmio, &m, sizeof(m), STRAIT_DMA_MMIO_SIZE_V1);
}

STRAIT_API void strait_dma_mmio_unmap(struct strait_dma *dma, struct strait_device *dev, struct strait_dma_mmio *mmio)
{
	if (!dma || !mmio || !mmio->priv || engine_alive(owner(dma)))
		return;
	dev->ops->mmio_unmap(dev, mmio->priv);
	free(mmio->priv);
	mmio->priv = NULL;
}
