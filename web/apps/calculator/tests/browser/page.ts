import { type Page, expect, test as base } from "@playwright/test";

/** The page, with everything that went wrong in it, or was asked of elsewhere, failing the test. */
export const test = base.extend<{ calculator: Calculator; tolerated: RegExp[] }>({
  tolerated: [[], { option: true }],
  calculator: async ({ page, baseURL, tolerated }, use) => {
    const wrong: string[] = [];
    page.on("pageerror", (error) => wrong.push(String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !tolerated.some((allowed) => allowed.test(message.text()))) wrong.push(message.text());
    });
    page.on("request", (request) => {
      if (!/^(blob|data):/.test(request.url()) && !request.url().startsWith(baseURL ?? "")) wrong.push(`asked ${request.url()}`);
    });
    await use(new Calculator(page));
    expect(wrong).toEqual([]);
  },
});

export class Calculator {
  constructor(readonly page: Page) {}

  get answer() {
    return this.page.locator("#answer");
  }
  get verdict() {
    return this.page.locator(".answer .verdict").first();
  }

  async open(hash = ""): Promise<void> {
    // Another address first: a change behind # alone loads nothing.
    await this.page.goto("about:blank");
    await this.page.goto(`./${hash}`);
    await expect(this.page.locator("#answer")).not.toHaveText(/Loading/);
    await expect(this.page.getByRole("tablist")).toBeVisible();
  }

  /** A field by the beginning of its label. */
  field(name: string) {
    return this.page.getByRole("textbox", { name: new RegExp(`^${name}\\b`) });
  }

  async pick(name: string, text: string, option?: string | RegExp): Promise<void> {
    const box = this.page.getByRole("combobox", { name, exact: true });
    await box.click();
    await box.fill(text);
    // The lists of plain selects have options too.
    const options = this.page.getByRole("listbox", { name, exact: true }).getByRole("option");
    await (option ? options.filter({ hasText: option }).first() : options.first()).click();
  }

  async view(name: string): Promise<void> {
    await this.page.getByRole("tab", { name }).click();
    await expect(this.page.getByRole("tabpanel")).not.toHaveText(/^Loading/);
  }

  /** What no page may ever show. */
  async sane(): Promise<void> {
    // What is quoted, a person wrote.
    const text = (await this.page.locator("body").innerText()).replace(/“[^”]*”/g, "").replace(/^\S+=.*$/gm, "");
    expect(text).not.toMatch(/\bNaN\b|\bundefined\b|\bnull\b|\bInfinity\b|\[object/);
  }

  async link(): Promise<string> {
    await this.page.getByRole("button", { name: "Copy link" }).click();
    await expect(this.page.getByText("Link copied.")).toBeVisible();
    return await this.page.evaluate(() => navigator.clipboard.readText());
  }
}

export { expect };
